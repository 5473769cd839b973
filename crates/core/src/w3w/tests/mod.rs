mod connections;
mod desk;
mod group;
mod known;
mod messages;
mod rings;
mod rings_of;
mod vectors;
