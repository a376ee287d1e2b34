//! Everything that is printed: `out!` and `outln!` for standard output, `errln!` for standard error.
//!
//! Printing never panics and never ends what is going on, whoever closed the other end. A message that standard error does not take is lost.
//! The first failure of standard output is kept and nothing more is written there; the command line asks for it at the end, with [`finish`].
//! A reader who has gone, as in `odec check mine.ode | head -1`, has what he wanted: that is no failure of a command.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why standard output took nothing more.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints on standard output.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::system::stdio::print(format_args!($($text)*)) };
}

/// Prints a line on standard output.
#[macro_export]
macro_rules! outln {
    () => { $crate::system::stdio::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::system::stdio::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line on standard error.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::system::stdio::complain(format_args!($($text)*)) };
}

/// What [`out!`] does.
pub fn print(text: Arguments) {
    with_output(|out| out.write_fmt(text));
}

/// Prints text and flushes it. Gives whether the output is still open.
pub fn show(text: &str) -> bool {
    with_output(|out| out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    lost().is_none()
}

/// What [`errln!`] does: one write for each message.
pub fn complain(text: Arguments) {
    let line = format!("{text}\n");
    _ = io::stderr().write_all(line.as_bytes());
}

/// Prints what is left.
///
/// # Errors
/// When what was printed is not all there, unless the reader has gone.
pub fn finish() -> io::Result<()> {
    with_output(|out| out.flush());
    match lost().take() {
        Some(e) if e.kind() != ErrorKind::BrokenPipe => Err(e),
        _ => Ok(()),
    }
}

fn with_output(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    let mut lost = lost();
    if lost.is_none() {
        *lost = write(&mut io::stdout().lock()).err();
    }
}

fn lost() -> MutexGuard<'static, Option<io::Error>> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}
