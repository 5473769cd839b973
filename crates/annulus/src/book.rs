//! The book: how to embed a node, to drive a machine by hand, to simulate an application, and what is promised.

#[doc = include_str!("../book/simulate.md")]
pub mod simulate {}

#[doc = include_str!("../book/embed.md")]
#[cfg_attr(feature = "disk", doc = "```")]
#[cfg_attr(feature = "disk", doc = include_str!("../examples/all_four.rs"))]
#[cfg_attr(feature = "disk", doc = "```")]
#[doc = include_str!("../book/embed_after.md")]
pub mod embed {}

#[doc = include_str!("../book/drive.md")]
pub mod drive {}

#[doc = include_str!("../book/promised.md")]
pub mod promised {}
