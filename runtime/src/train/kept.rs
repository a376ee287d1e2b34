//! Parameters of earlier steps, beside the checkpoint of a run: `kept/500.safetensors`.
//!
//! A train block says of which steps and how many (`keep checkpoints(last: 5, every: 500)`); what they are for is in [`mod@crate::train::average`].

use crate::system::owned::KEPT;
use std::fs;
use std::io;
use std::path::Path;

const END: &str = ".safetensors";

/// Where those of a step are, in the folder of a run.
pub fn name(step: u64) -> String {
    format!("{KEPT}/{step}{END}")
}

/// The steps up to this one whose parameters a run has kept, in order.
///
/// # Errors
/// When the folder cannot be read; where there is none, nothing is kept.
pub fn steps(run: &Path, most: u64) -> io::Result<Vec<u64>> {
    let folder = match fs::read_dir(run.join(KEPT)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        folder => folder?,
    };
    let mut steps = Vec::new();
    for file in folder {
        let file = file?.file_name();
        let step = file
            .to_str()
            .and_then(|n| n.strip_suffix(END)?.parse().ok());
        // Names that another program gave, `+5` among them, are none of these.
        let own = |step: &u64| file.to_str() == Some(&format!("{step}{END}"));
        steps.extend(step.filter(|step| *step <= most).filter(own));
    }
    steps.sort_unstable();
    Ok(steps)
}
