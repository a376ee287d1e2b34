//! A trial that runs elsewhere: `odec __trial`, a task of a Ray cluster.
//!
//! Reads its request as a line of standard input, and prints what came out as JSON. At the end of standard input, when whoever asked is gone, the run is saved and
//! training stops.

use crate::cli;
use odec_driver::fail::{Done, Failure};
use odec_explore::trial::{Request, carry_out};
use odec_runtime::outln;
use serde_json::json;
use std::io::{BufRead, Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn run(args: &cli::Trial) -> Done {
    let mut line = String::new();
    stdin()
        .lock()
        .read_line(&mut line)
        .map_err(Failure::input)?;
    let request: Request = serde_json::from_str(&line)
        .map_err(|e| Failure::Input(format!("this is no request for a trial: {e}")))?;
    let stop: Arc<AtomicBool> = Arc::default();
    let asker = stop.clone();
    std::thread::spawn(move || {
        // However it ends, nobody is left who waits for a result.
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        asker.store(true, Ordering::Relaxed);
    });
    let outcome = carry_out(&request, args.device, &stop)?;
    outln!("{}", json!({ "outcome": outcome }));
    Ok(())
}
