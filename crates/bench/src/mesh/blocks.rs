//! Durable blocks: messages to an offline node. Each is stored and reported as stored, and nothing more.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use annulus_core::w3w::{Command, Config, Mesh, Nid, Reply};
use annulus_net::{Options, Store, spawn};

use super::noise;

/// Blocks under way at once.
const AT_ONCE: usize = 128;
/// The most that share a sync, as in the driver's store.
const GROUP_MAX: usize = 256;
const BLOCK_BYTES: usize = 4096;
const CACHE_BYTES: usize = 1024 * 1024;

/// Blocks per second of a node.
pub(super) fn mesh(blocks: usize) -> anyhow::Result<f64> {
    let directory = tempfile::tempdir_in(".")?;
    let data: Vec<Vec<u8>> = (0..blocks).map(|number| noise(number as u64, BLOCK_BYTES)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = Config {
            uuid: [7; 16],
            bind: "127.0.0.1:0".parse()?,
            queue_max: blocks + 1,
            boxes_max: blocks + 1,
            ..Config::default()
        };
        let mesh = Mesh::new(&config, [7; 32])?;
        let node = spawn(mesh, Options::with_store(Store::File(directory.path().join("mesh.redb"))))?;
        let begin = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        let parts = data.chunks(blocks.div_ceil(AT_ONCE)).map(<[Vec<u8>]>::to_vec);
        for part in parts {
            let node = node.clone();
            senders.spawn(async move {
                for data in part {
                    let to = Nid::from_bytes([1; 32]);
                    match node.command(Command::Send { to, data, receipt: false }).await? {
                        Reply::Sent { .. } => {}
                        other => anyhow::bail!("not kept: {other:?}"),
                    }
                }
                Ok(())
            });
        }
        while let Some(sent) = senders.join_next().await {
            sent??;
        }
        let elapsed = begin.elapsed();
        node.stop().await;
        Ok(blocks as f64 / elapsed.as_secs_f64())
    })
}

/// A block to be written, and the channel for its reply.
type Put = (Vec<u8>, Vec<u8>, SyncSender<()>);

/// Blocks per second of the bare database: the same number of writers, and one thread that puts all waiting blocks
/// into one transaction (group commit).
pub(super) fn bare(blocks: usize) -> anyhow::Result<f64> {
    let directory = tempfile::tempdir_in(".")?;
    let data: Vec<Vec<u8>> = (0..blocks).map(|number| noise(number as u64, BLOCK_BYTES)).collect();
    let mut builder = redb::Database::builder();
    let database = builder.set_cache_size(CACHE_BYTES).create(directory.path().join("bare.redb"))?;
    let table = redb::TableDefinition::<&[u8], &[u8]>::new("blocks");
    let (puts, waiting) = sync_channel::<Put>(1024);
    let begin = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        for part in data.chunks(blocks.div_ceil(AT_ONCE)) {
            let puts = puts.clone();
            scope.spawn(move || {
                for data in part {
                    // As random as a hash, and for nothing.
                    let key = data[..32].to_vec();
                    let (done, told) = sync_channel(1);
                    if puts.send((key, data.clone(), done)).is_err() || told.recv().is_err() {
                        return;
                    }
                }
            });
        }
        drop(puts);
        while let Ok(first) = waiting.recv() {
            let rest: Vec<Put> = waiting.try_iter().take(GROUP_MAX - 1).collect();
            let transaction = database.begin_write()?;
            let mut open = transaction.open_table(table)?;
            let group: Vec<Put> = std::iter::once(first).chain(rest).collect();
            for (key, value, _) in &group {
                open.insert(key.as_slice(), value.as_slice())?;
            }
            drop(open);
            transaction.commit()?;
            // A caller that no longer waits gets nothing.
            for (_, _, done) in group {
                let _ = done.send(());
            }
        }
        Ok(())
    })?;
    Ok(blocks as f64 / begin.elapsed().as_secs_f64())
}
