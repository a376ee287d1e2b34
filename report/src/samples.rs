//! What models continue a text with.
//!
//! Takes texts that others have generated; gives the page's section of them.

use crate::runs::Run;
use odec_runtime::system::shown::markup;
use odec_source::escape::{escaped, escaped_lines};
use std::fmt::Write;

/// Continuations of one text, drawn in the same way from each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    pub prompt: String,
    pub temperature: f64,
    pub seed: u64,
    /// Of each run in turn, with why there is none where there is none.
    pub texts: Vec<Result<String, String>>,
}

/// The section.
pub(crate) fn section(samples: &Samples, runs: &[Run], out: &mut String) {
    let _ = writeln!(
        out,
        "<section>\n<h2>Samples</h2>\n<p class=\"soft\">How each model continues <code>{}</code>, at temperature {}, seed {}.</p>",
        markup(&escaped(&samples.prompt)),
        samples.temperature,
        samples.seed
    );
    for (run, text) in runs.iter().zip(&samples.texts) {
        let _ = writeln!(out, "<h3>{}</h3>", markup(run.called()));
        let _ = match text {
            Ok(text) => writeln!(
                out,
                "<pre class=\"sample\"><b>{}</b>{}</pre>",
                markup(&escaped_lines(&samples.prompt)),
                markup(&escaped_lines(text))
            ),
            Err(why) => writeln!(out, "<p class=\"soft\">{}</p>", markup(&escaped(why))),
        };
    }
    *out += "</section>\n";
}
