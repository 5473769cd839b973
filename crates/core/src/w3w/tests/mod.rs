mod connections;
mod desk;
mod group;
mod messages;
mod rings;
mod rings_of;
mod vectors;
