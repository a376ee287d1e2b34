//! Launches one by one beside the reference device: what is wrong is named and dumped, what is within its bound is not.

use crate::card::{code, late};
use crate::source::built;
use odec_compiler::passes::{Options, build_manifest};
use odec_program::gpu::tensor;
use odec_program::{DType, Kernel, KernelSpec, Target, bf16};
use odec_runtime::conformance::launches;
use odec_runtime::conformance::launches::{Found, Rule, beside};
use odec_runtime::device::Device;
use odec_runtime::device::cuda::CudaDevice;
use odec_runtime::device::cuda::recording::Recording;
use odec_runtime::device::memory::Words;
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::{Artifact, DeviceChoice};
use std::path::Path;

/// A model whose contractions and attention run on tensor cores in `precision bf16`: heads that share keys, a window, epilogues.
fn model(precision: &str, target: Target) -> Artifact {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 4, kv_heads: 2, causal, rope, window: 9)\n\
         field ffn = rmsnorm |> swiglu(hidden: 48)\n\
         model small {{\n  input tokens(vocab: 256, context: 20)\n  embed learned(width: 64)\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  steps 12;  batch 2\n  optimizer adamw(lr: 1e-2)\n  precision {precision}\n}}\n"
    );
    planned(&text, target)
}

/// One whose attention, on tensor cores, reads a quarter as many keys as queries.
fn of_fewer_keys(target: Target) -> Artifact {
    let text = "field att = layernorm |> conv_attention(heads: 2, bias)
model small {
  input  image(size: 10)
  embed  conv(kernel: 2, stride: 1, width: 32)
  evolve euler(att) for 1 step
  output layernorm |> classes(10)
}
train { data images(\"none.npz\", classes: 10, mean: 0, std: 1)
  batch 2;  steps 3;  optimizer adamw(lr: 1e-2);  precision bf16 }
";
    planned(text, target)
}

fn planned(text: &str, target: Target) -> Artifact {
    let built = built(text);
    let options = Options::of(target, built.real());
    Artifact::in_memory(build_manifest(&built, text, options).unwrap().manifest).unwrap()
}

const CARD: Rule = Rule {
    computed: true,
    tensor_cores: true,
};

/// The reference device, but for one kernel, of which it moves a result by a part of itself.
struct Faulty {
    inner: ReferenceDevice,
    kernel: usize,
    operand: usize,
    dtype: DType,
    by: f32,
}

impl Device for Faulty {
    fn name(&self) -> String {
        "faulty".into()
    }
    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        self.inner.run(kernel, operands, dims, coeffs);
        if kernel == self.kernel {
            let word = &operands[self.operand][5];
            let moved = |x: f32| x + self.by * x.abs().max(1.0);
            // Of two numbers of bf16 the first.
            let bits = word.get();
            word.set(match self.dtype {
                DType::Bf16 => {
                    let x = moved(bf16::to_f32(bits as u16));
                    bits & 0xFFFF_0000 | u32::from(bf16::of_f64(x.into()))
                }
                _ => moved(f32::from_bits(bits)).to_bits(),
            });
        }
    }
}

/// Compares a device that is wrong in one kernel.
fn faulty(a: &Artifact, kernel: usize, operand: usize, by: f32, dump: Option<&Path>) -> Found {
    let device = Faulty {
        inner: ReferenceDevice::new(&a.manifest().program.kernels),
        kernel,
        operand,
        dtype: match a.signatures().get(kernel) {
            Some(of) => of.operands[operand].dtype,
            None => DType::F32,
        },
        by,
    };
    beside(a, Box::new(device), CARD, dump).unwrap()
}

/// Whether a kernel is of a kind.
type Is = fn(&KernelSpec) -> bool;

/// The number of the first kernel that is such, and of its first result.
fn first(a: &Artifact, is: impl Fn(&KernelSpec) -> bool) -> (usize, usize) {
    let mut kernels = a.manifest().program.kernels.iter().enumerate();
    let of = |(n, k): (usize, &Kernel)| {
        let operands = &a.signatures()[n].operands;
        let written = operands.iter().position(|o| o.mode.writes())?;
        let plain = operands[written].dtype == DType::F32;
        // Of maps one that does more than round.
        let plain = plain || !matches!(k.spec, KernelSpec::Rows(_));
        (is(&k.spec) && plain).then_some((n, written))
    };
    kernels.find_map(of).unwrap()
}

#[test]
fn every_launch_is_compared_within_its_bound() {
    for target in [Target::Sm80, Target::Sm90a] {
        let a = model("bf16", target);
        let sound = faulty(&a, usize::MAX, 0, 0.0, None);
        assert_eq!(sound.failed, 0, "{:?}", sound.wrong);
        let (bounded, all) = (sound.bounded, sound.launches);
        assert!(bounded > 50 && all > bounded + 50, "{bounded} of {all}");
        // The reference device adds in f32: it is not exact, and so uses a part of the bounds.
        assert!(sound.worst > 0.0 && sound.worst < 1.0, "{}", sound.worst);
    }
}

/// Bounds of attention to keys of other tokens: a sound device is within them, one that is off is not.
#[test]
fn keys_of_other_tokens_have_their_bounds() {
    let a = of_fewer_keys(Target::Sm90a);
    let of_others = |spec: &KernelSpec| match spec {
        KernelSpec::Attend(k) | KernelSpec::AttendBackward(k) => {
            k.others && tensor::attend::runs(k)
        }
        _ => false,
    };
    let kernels = a.manifest().program.kernels.iter().enumerate();
    let found: Vec<usize> = (kernels.filter(|(_, k)| of_others(&k.spec)))
        .map(|(n, _)| n)
        .collect();
    assert!(found.len() > 1, "forward and backward: {found:?}");
    let sound = faulty(&a, usize::MAX, 0, 0.0, None);
    assert_eq!(sound.failed, 0, "{:?}", sound.wrong);
    for kernel in found {
        let operands = a.signatures()[kernel].operands.iter().enumerate();
        for (operand, _) in operands.filter(|(_, o)| o.mode.writes()) {
            let wrong = faulty(&a, kernel, operand, 0.1, None).wrong;
            assert!(
                wrong.iter().any(|w| w.operand == operand),
                "operand {operand}"
            );
        }
    }
}

#[test]
fn what_is_wrong_is_named_and_its_operands_dumped() {
    let dir = tempfile::tempdir().unwrap();
    let a = model("bf16", Target::Sm90a);
    let kinds: [(&str, Is, f32); 5] = [
        (
            "contract",
            |k| matches!(k, KernelSpec::Contract(c) if c.epilogue.is_none()),
            0.01,
        ),
        ("attend", |k| matches!(k, KernelSpec::Attend(_)), 0.1),
        (
            "attend_backward",
            |k| matches!(k, KernelSpec::AttendBackward(_)),
            0.1,
        ),
        (
            "attend_cached",
            |k| matches!(k, KernelSpec::AttendCached(_)),
            0.1,
        ),
        // Outside of tensor cores, one bit.
        (
            "rows",
            |k| matches!(k, KernelSpec::Rows(r) if r.dtype == DType::F32),
            1e-7,
        ),
    ];
    for (kind, is, by) in kinds {
        let (kernel, operand) = first(&a, is);
        let dump = dir.path().join(kind);
        let found = faulty(&a, kernel, operand, by, Some(&dump));
        let w = found
            .wrong
            .first()
            .unwrap_or_else(|| panic!("{kind}: nothing is wrong"));
        assert!(
            found
                .wrong
                .iter()
                .all(|w| w.kernel == a.manifest().program.kernels[kernel].symbol)
        );
        assert!(!w.site.is_empty() && !w.dims.is_empty());
        assert_eq!((w.operand, w.differ), (operand, 1), "{kind}");
        assert_eq!(found.dump.as_deref(), Some(dump.as_path()));
        let said = std::fs::read_to_string(dump.join("launch.json")).unwrap();
        assert!(
            said.contains(&w.kernel) && said.contains("\"spec\""),
            "{said}"
        );
        let bytes =
            |what: &str| std::fs::read(dump.join(format!("operand.{operand}.{what}.bin"))).unwrap();
        let (device, wanted) = (bytes("device"), bytes("wanted"));
        assert_eq!(wanted.len() / 8, w.elements, "{kind}");
        let at = 8 * w.first;
        assert_eq!(
            f64::from_le_bytes(wanted[at..at + 8].try_into().unwrap()),
            w.want
        );
        let got = match a.signatures()[kernel].operands[operand].dtype {
            DType::Bf16 => {
                let bits = device[at / 4..at / 4 + 2].try_into().unwrap();
                bf16::to_f32(u16::from_le_bytes(bits))
            }
            _ => f32::from_le_bytes(device[at / 2..at / 2 + 4].try_into().unwrap()),
        };
        assert_eq!(got, w.got as f32);
        assert_eq!(bytes("before").len(), device.len());
    }
}

/// A card with memory of its own, which is late: operands are brought before they are compared.
#[test]
fn launches_of_a_card_are_compared() {
    let a = model("f32", Target::Sm80);
    let device = late(&a.manifest().program.kernels);
    let found = beside(&a, device, CARD, None).unwrap();
    assert_eq!((found.failed, found.bounded), (0, 0), "{:?}", found.wrong);
    let reference = launches::launches(&a, DeviceChoice::Reference, None).unwrap();
    assert!(found.launches >= reference.launches && reference.failed == 0);
}

fn recorded(a: &Artifact, breaks_after: Option<u64>, one_by_one: bool) -> String {
    let recording = Recording {
        breaks_after,
        ..Recording::with(u64::MAX)
    };
    let kernels: &[Kernel] = &a.manifest().program.kernels;
    let mut device = CudaDevice::new(recording, Target::Sm90a, &code(kernels), kernels, 0).unwrap();
    if one_by_one {
        device.set_one_by_one(true);
    }
    let rule = Rule {
        computed: false,
        tensor_cores: true,
    };
    match beside(a, Box::new(device), rule, None) {
        Ok(found) => format!("{} launches", found.launches),
        Err(e) => e.to_string(),
    }
}

/// A launch that the driver refuses, and one that fails while it runs, are named with kernel, entry, equation, dims and blocks.
#[test]
fn a_failed_launch_is_named() {
    let a = model("bf16", Target::Sm90a);
    assert!(recorded(&a, None, false).ends_with(" launches"));
    for one_by_one in [false, true] {
        let said = recorded(&a, Some(7), one_by_one);
        let kernels = &a.manifest().program.kernels;
        assert!(kernels.iter().any(|k| said.contains(&k.symbol)), "{said}");
        for part in [
            "the card is broken",
            " at forward ",
            ", dims [",
            " blocks of ",
            "bytes of shared memory",
        ] {
            assert!(said.contains(part), "{said}");
        }
        // What was refused, or ran alone, is known; else the message says how to learn it.
        assert!(
            said.contains("refused was kernel")
                || said.contains("it ran kernel")
                || said.contains("ODEC_GRAPHS=off"),
            "{said}"
        );
    }
}
