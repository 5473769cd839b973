//! Counters: the actions and refusals of a machine, as numbers.

use crate::tag::Service;

/// Declares a struct of `u64` counters, each with the sentence that explains it in the metrics.
///
/// ```
/// annulus_core::counters! {
///     /// The counters of this machine.
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

/// One counter, as the metrics show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its service.
    pub service: Service,
    /// Its name, unique within the service.
    pub name: &'static str,
    /// Its meaning, in one sentence.
    pub help: &'static str,
    /// Its value.
    pub value: u64,
}

/// A callback that gets one counter after the other.
pub type VisitCounter<'a> = &'a mut dyn FnMut(Counter);
