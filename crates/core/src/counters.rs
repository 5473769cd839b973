//! Counters: what a machine has done, and what it refused to do, as numbers.

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
/// counters.visit(&mut |name, help, value| seen.push((name, help, value)));
/// assert_eq!(seen, [("malformed", "Datagrams that were not a message.", 1)]);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$outer:meta])* $vis:vis struct $name:ident { $(#[doc = $help:literal] $field:ident,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $(#[doc = $help] pub $field: u64,)+ }

        impl $name {
            /// Shows every counter: its name, its meaning and its value.
            pub fn visit(&self, visit: $crate::VisitCounter<'_>) {
                $(visit(stringify!($field), $help.trim(), self.$field);)+
            }
        }
    };
}

/// Called with the name, the meaning and the value of a counter.
pub type VisitCounter<'a> = &'a mut dyn FnMut(&'static str, &'static str, u64);
