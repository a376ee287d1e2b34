//! A folder with a tiny model and a corpus, and odec run in it.

// Each test crate uses its own part of this.
#![allow(dead_code)]

pub mod explored;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Two steps of 16 columns: builds in a second and trains in less.
pub const TINY: &str = r#"
field att   = rmsnorm |> attention(heads: 2, causal, rope)
field ffn   = rmsnorm |> swiglu(hidden: 24)
field layer = increment(lie(att, ffn))

model tiny {
  input  tokens(vocab: 256, context: 16)
  embed  learned(width: 16)
  evolve iie(layer, r: 1) for 2 steps { h = 1;  weights per step }
  output rmsnorm |> logits(tied)
  init   normal(std: 0.1)
}

train {
  data      text("corpus.txt", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 1e-2)
  batch 4;  steps 30;  clip 1.0;  seed 0
}
"#;

pub struct Place {
    folder: TempDir,
    cache: PathBuf,
}

impl Place {
    /// Object code is kept in a cache that all tests share, as all of a user's odecs do: the tiny model is compiled once.
    pub fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        Place { folder, cache }.filled()
    }
    /// With a cache and a key of its own, in `cache`.
    pub fn alone() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = folder.path().join("cache");
        Place { folder, cache }.filled()
    }
    fn filled(self) -> Place {
        let place = self;
        place.write("tiny.ode", TINY);
        let line = "the quick brown fox jumps over the lazy dog\n";
        place.write("corpus.txt", &line.repeat(200));
        place
    }
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("written");
    }
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).expect(name)
    }
    /// Runs odec here.
    pub fn odec(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("odec starts")
    }
    /// The same, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        self.through(Command::new(env!("CARGO_BIN_EXE_odec")), args)
    }
    /// A command to run here.
    pub fn through(&self, mut c: Command, args: &[&str]) -> Command {
        c.current_dir(self.path()).env("ODEC_CACHE", &self.cache);
        c.args(args);
        c
    }
    /// Standard output of a run that must succeed.
    pub fn good(&self, args: &[&str]) -> String {
        let out = self.odec(args);
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        assert!(
            out.status.success(),
            "odec {args:?} failed:\n{stdout}\n{stderr}"
        );
        stdout
    }
    /// Exit code and standard error of a run whose standard output goes elsewhere.
    pub fn printing_to(&self, stdout: impl Into<Stdio>, args: &[&str]) -> (Option<i32>, String) {
        let mut c = self.command(args);
        let out = c.stdout(stdout).stderr(Stdio::piped()).spawn();
        let out = out.expect("odec starts").wait_with_output();
        let out = out.expect("it ends");
        (out.status.code(), text(&out.stderr))
    }
    /// Exit code and standard error of a run that must fail.
    pub fn bad(&self, args: &[&str]) -> (i32, String) {
        let out = self.odec(args);
        assert!(
            !out.status.success(),
            "odec {args:?} succeeded:\n{}",
            text(&out.stdout)
        );
        (out.status.code().expect("an exit code"), text(&out.stderr))
    }
    /// The tensors of a run's checkpoint; its metadata also holds the seconds it took.
    pub fn tensors(&self, run: &str) -> Vec<(String, Vec<u8>)> {
        let bytes = std::fs::read(self.path().join(run).join("checkpoint.safetensors"));
        let bytes = bytes.expect("a checkpoint");
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("a checkpoint");
        let mut all: Vec<_> = file
            .iter()
            .map(|(name, t)| (name.to_string(), t.data().to_vec()))
            .collect();
        all.sort();
        all
    }
}

/// A `.npy` file: what its elements are, as `<f8`, its shape, as `(2, 3)`, and their bytes.
pub fn npy(kind: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(head.len()).expect("a short head");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(head.bytes());
    bytes.extend(elements);
    bytes
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
