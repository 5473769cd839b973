mod group;
mod rings;
