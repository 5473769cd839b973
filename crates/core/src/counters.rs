//! Counters: what a machine has done, and what it refused to do, as numbers.

use crate::tag::Service;

/// Declares a struct of `u64` counters, each with the sentence that explains it to whoever reads the metrics.
///
/// ```
/// annulus_core::counters! {
///     /// What this machine counts.
///     pub struct Counters {
///         /// Datagrams that were not a message.
///         malformed,
///     }
/// }
///
/// let mut counters = Counters::default();
/// counters.malformed += 1;
/// let mut seen = Vec::new();
/// counters.visit(&mut |counter| seen.push((counter.name, counter.help, counter.value)));
/// assert_eq!(seen, [("malformed", "Datagrams that were not a message.", 1)]);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$outer:meta])* $vis:vis struct $name:ident { $(#[doc = $help:literal] $field:ident,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $(#[doc = $help] pub $field: u64,)+ }

        impl $name {
            /// Shows every counter.
            pub fn visit(&self, visit: $crate::VisitCounter<'_>) {
                $(visit($crate::Counter {
                    service: $crate::Service(0),
                    name: stringify!($field),
                    help: $help.trim(),
                    value: self.$field,
                });)+
            }
        }
    };
}

/// One counter, as shown to whoever reads the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Whose it is.
    pub service: Service,
    /// Its name, unique within the service.
    pub name: &'static str,
    /// Its meaning, in one sentence.
    pub help: &'static str,
    /// How much it is.
    pub value: u64,
}

/// Is shown one counter after the other.
pub type VisitCounter<'a> = &'a mut dyn FnMut(Counter);
