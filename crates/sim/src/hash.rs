//! The hash of a trace: cheap enough to be always on, the same on every platform.
//!
//! It is no defence against malice. It must change with every change of a run, and for no other reason. So the mixing
//! is written here, not taken from a library that may change it.

use core::fmt;

use serde::ser::{self, Serialize};

/// A running hash over numbers and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceHash(Mixer);

impl TraceHash {
    /// Takes in a number.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.0.number(number);
    }

    /// Takes in bytes, and how many there were.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.bytes(bytes);
    }

    /// Takes in whatever can be serialised, such as an event.
    pub fn value(&mut self, value: &impl Serialize) {
        // Our serializer fails only where a `Serialize` of an event asks it to.
        if value.serialize(&mut self.0).is_err() {
            self.number(u64::MAX);
        }
    }

    /// The hash of all that was taken in.
    #[must_use]
    pub const fn finish(self) -> u64 {
        self.0.0
    }
}

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.finish())
    }
}

impl fmt::Write for TraceHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// The state of the hash. It is apart from [`TraceHash`] so that its serializer methods stay private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mixer(u64);

impl Default for Mixer {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Mixer {
    #[inline]
    fn number(&mut self, number: u64) {
        // The two halves of a 128-bit product, folded: every bit of the input reaches every bit of the state.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = ((product >> 64) as u64 ^ product as u64).wrapping_add(0x1319_8a2e_0370_7344);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.number(u64::from_le_bytes(word));
        }
    }
}

/// A value that could not be serialised.
#[derive(Debug)]
struct Unserialisable;

impl fmt::Display for Unserialisable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value refused to be serialised")
    }
}

impl std::error::Error for Unserialisable {}

impl ser::Error for Unserialisable {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

type Done = Result<(), Unserialisable>;

/// Takes in the numbers of the listed types.
macro_rules! numbers {
    ($($name:ident: $type:ty,)+) => {
        $(fn $name(self, v: $type) -> Done { self.number(v as u64); Ok(()) })+
    };
}

impl ser::Serializer for &mut Mixer {
    type Ok = ();
    type Error = Unserialisable;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_char: char,
    }

    fn serialize_i128(self, v: i128) -> Done {
        self.serialize_u128(v as u128)
    }

    fn serialize_u128(self, v: u128) -> Done {
        self.number(v as u64);
        self.number((v >> 64) as u64);
        Ok(())
    }

    fn serialize_f32(self, v: f32) -> Done {
        self.number(u64::from(v.to_bits()));
        Ok(())
    }

    fn serialize_f64(self, v: f64) -> Done {
        self.number(v.to_bits());
        Ok(())
    }

    fn serialize_str(self, v: &str) -> Done {
        self.bytes(v.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, v: &[u8]) -> Done {
        self.bytes(v);
        Ok(())
    }

    fn serialize_none(self) -> Done {
        self.number(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        self.number(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Done {
        self.number(u64::from(index));
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Done {
        self.number(u64::from(index));
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, Unserialisable> {
        self.number(len.map_or(u64::MAX, |len| len as u64));
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Unserialisable> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unserialisable> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unserialisable> {
        self.number(u64::from(index));
        Ok(self)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self, Unserialisable> {
        self.serialize_seq(len)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unserialisable> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unserialisable> {
        self.number(u64::from(index));
        Ok(self)
    }

    /// Addresses in their bytes: an eighth of the cost of their text.
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Takes in the parts of something composed, one by one.
macro_rules! parts {
    ($($trait:ident: $method:ident,)+) => {
        $(impl ser::$trait for &mut Mixer {
            type Ok = ();
            type Error = Unserialisable;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
                value.serialize(&mut **self)
            }

            fn end(self) -> Done {
                Ok(())
            }
        })+
    };
}

parts! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

impl ser::SerializeMap for &mut Mixer {
    type Ok = ();
    type Error = Unserialisable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(&mut **self)
    }

    fn end(self) -> Done {
        Ok(())
    }
}

/// Takes in named fields by their values: the order of the fields is the struct's own.
macro_rules! fields {
    ($($trait:ident),+) => {
        $(impl ser::$trait for &mut Mixer {
            type Ok = ();
            type Error = Unserialisable;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Done {
                value.serialize(&mut **self)
            }

            fn end(self) -> Done {
                Ok(())
            }
        })+
    };
}

fields! { SerializeStruct, SerializeStructVariant }

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        let mut hash = TraceHash::default();
        hash.bytes(bytes);
        hash.finish()
    }

    #[test]
    fn every_flipped_bit_changes_it() {
        let bytes: Vec<u8> = (0..23).collect();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(hash(&bytes), hash(&flipped), "bit {bit}");
        }
    }

    #[test]
    fn the_length_counts() {
        assert_ne!(hash(&[0; 8]), hash(&[0; 9]));
        assert_ne!(hash(&[]), TraceHash::default().finish());
    }

    #[test]
    fn it_outlives_an_upgrade() {
        let mut all = TraceHash::default();
        all.number(7);
        all.bytes(b"annulus and a ring");
        all.value(&(Some("text"), [1u8, 2], 3.5f64));
        // Computed by an implementation of the same rules in another language.
        assert_eq!(all.to_string(), "4f8867619b46620c");
    }

    #[test]
    fn variants_and_fields_count() {
        #[derive(serde::Serialize)]
        enum Event {
            A { n: u32 },
            B { n: u32 },
        }
        let of = |event: &Event| {
            let mut hash = TraceHash::default();
            hash.value(event);
            hash.finish()
        };
        assert_ne!(of(&Event::A { n: 1 }), of(&Event::B { n: 1 }));
        assert_ne!(of(&Event::A { n: 1 }), of(&Event::A { n: 2 }));
    }
}
