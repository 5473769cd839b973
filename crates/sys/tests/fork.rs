//! `fork` needs a process with one thread, and the harness of tests has several. So this test is a program.

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        a_process_with_one_thread_gets_a_copy()?;
        a_process_with_two_threads_gets_an_error()?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn a_process_with_one_thread_gets_a_copy() -> std::io::Result<()> {
    let (mut reader, mut writer) = std::io::pipe()?;
    let parent = std::process::id();
    match annulus_sys::fork()? {
        None => {
            let is_child = std::os::unix::process::parent_id() == parent && std::process::id() != parent;
            writer.write_all(if is_child { b"child" } else { b"parent" })?;
            std::process::exit(0);
        }
        Some(pid) => {
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text)?;
            assert_eq!(text, "child");
            assert!(u32::try_from(pid).is_ok_and(|pid| pid != parent));
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn a_process_with_two_threads_gets_an_error() -> std::io::Result<()> {
    let (mut reader, writer) = std::io::pipe()?;
    // It runs until the pipe is closed.
    let other = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
    let refused = annulus_sys::fork().is_err_and(|error| error.to_string().contains("several threads"));
    assert!(refused, "a second thread may hold a lock");
    drop(writer);
    other.join().expect("the thread reads")?;
    Ok(())
}
