//! Artifacts: written whole, read back, refused when anything is wrong.

use crate::{c, support};
use odec_program::kernel::Order;
use odec_program::manifest::{FORMAT, HASH_FILE, MANIFEST_FILE, Manifest, SIGNATURE_FILE};
use odec_program::optimizers::{AdamW, Lion};
use odec_program::rng::Stream;
use odec_program::schedules::{InverseSqrt, Linear};
use odec_program::{DType, Kernel, Operand, Size, Slot, Target};
use odec_runtime::system::hash::sha256;
use odec_runtime::{Artifact, ArtifactError, DeviceChoice, ObjectCode, Unsigned};
use std::fs;
use std::path::Path;

fn object(target: &str) -> ObjectCode {
    ObjectCode {
        file: "kernels.so".into(),
        target: target.into(),
        bytes: b"not really code".to_vec(),
    }
}

fn words(dir: &Path, r: Result<Artifact, ArtifactError>) -> String {
    r.map(drop)
        .unwrap_err()
        .to_string()
        .replace(&dir.display().to_string(), "DIR")
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/tiny.odex");
    Artifact::write(&path, support::manifest(), &[object("cpu:portable")]).unwrap();
    let a = Artifact::load(&path).unwrap();
    let mut want = support::manifest();
    want.objects = a.manifest().objects.clone();
    assert_eq!(*a.manifest(), want);
    // Over an older one, and as a copy.
    Artifact::write(&path, support::manifest(), &[]).unwrap();
    assert!(!path.join("kernels.so").exists());
    let copy = Artifact::load(&path)
        .unwrap()
        .copy_to(&dir.path().join("copy.odex"))
        .unwrap();
    assert_eq!(copy.manifest(), Artifact::load(&path).unwrap().manifest());
    assert!(
        Artifact::load(&path)
            .unwrap()
            .device(DeviceChoice::Reference, None)
            .is_ok()
    );
}

#[test]
fn damaged_foreign_and_missing_ones_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let path = d.join("tiny.odex");
    let fresh = || Artifact::write(&path, support::manifest(), &[object("cpu:portable")]).unwrap();
    let load = || words(d, Artifact::load(&path));
    let mut list = vec![load()];
    fs::create_dir(d.join("empty")).unwrap();
    list.push(words(d, Artifact::load(&d.join("empty"))));
    list.push(words(
        d,
        Artifact::write(&d.join("empty"), support::manifest(), &[]),
    ));

    fresh();
    let manifest = path.join(MANIFEST_FILE);
    let text = fs::read_to_string(&manifest).unwrap();
    // With the hash that belongs to it, as a careful hand would.
    let write = |text: &str| {
        let line = format!("{}  {MANIFEST_FILE}\n", sha256(text.as_bytes()));
        fs::write(path.join(HASH_FILE), line).unwrap();
        fs::write(&manifest, text).unwrap();
    };
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    list.push(load());
    let newer = text.replacen(
        &format!("\"format\": {FORMAT}"),
        "\"format\": 99, \"unheard\": 1",
        1,
    );
    fs::write(
        &manifest,
        newer.replacen("\"odec\": \"test\"", "\"odec\": \"9.0.0\"", 1),
    )
    .unwrap();
    list.push(load());
    fs::write(&manifest, text.replacen("0.05", "0.06", 1)).unwrap();
    list.push(load());
    write(&text.replacen("\"kernels.so\"", "\"../kernels.so\"", 1));
    list.push(load());
    write(&text);
    assert!(Artifact::load(&path).is_ok());
    fs::remove_file(path.join(HASH_FILE)).unwrap();
    list.push(load());

    fresh();
    fs::write(path.join("kernels.so"), b"not really core").unwrap();
    list.push(load());
    fs::remove_file(path.join("kernels.so")).unwrap();
    list.push(load());

    let device = |a: &Artifact| {
        a.device(DeviceChoice::Cpu, Some(1))
            .map(drop)
            .unwrap_err()
            .to_string()
            .replace(&d.display().to_string(), "DIR")
    };
    list.push(device(
        &Artifact::write(&path, support::manifest(), &[]).unwrap(),
    ));
    list.push(device(
        &Artifact::write(&path, support::manifest(), &[object("cpu:vax")]).unwrap(),
    ));
    // Good hashes, but no code.
    list.push(device(
        &Artifact::write(&path, support::manifest(), &[object("cpu:portable")]).unwrap(),
    ));
    fs::remove_file(path.join(SIGNATURE_FILE)).unwrap();
    list.push(device(&Artifact::load(&path).unwrap()));
    // Manifests change with the format; what is said does not.
    let hide = |word: &str| match word.trim_end_matches(|c: char| !c.is_ascii_hexdigit()) {
        hash if hash.len() == 64 => word.replace(hash, "HASH"),
        _ => word.to_string(),
    };
    let hidden = |line: &String| line.split(' ').map(hide).collect::<Vec<_>>().join(" ");
    insta::assert_snapshot!(list.iter().map(hidden).collect::<Vec<_>>().join("\n"));
}

/// Code for tile registers, where there are none: what is missing is named.
#[test]
fn code_for_other_processors_is_refused() {
    let Err(missing) = Target::Amx.supported() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.odex");
    let artifact = Artifact::write(&path, support::manifest(), &[object("cpu:amx")]).unwrap();
    let refused = artifact.device(DeviceChoice::Cpu, Some(1)).map(drop);
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("built for cpu:amx") && said.contains(missing),
        "{said}"
    );
}

/// A flipped bit or a missing end, anywhere in any file, is noticed and never a crash.
#[test]
fn every_flipped_bit_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.odex");
    Artifact::write(&path, support::manifest(), &[object("cpu:portable")]).unwrap();
    support::damage(&path, &Stream::new(5, "flips"), 150, &mut |what| {
        // A damaged signature leaves the artifact whole, but nobody's.
        let found = Artifact::load(&path).map(|a| a.not_ours().is_some());
        assert!(found.unwrap_or(true), "{what} goes unnoticed");
    });
    assert_eq!(Artifact::load(&path).unwrap().not_ours(), None);
}

#[test]
fn a_failed_write_leaves_the_old_artifact() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.odex");
    Artifact::write(&path, support::manifest(), &[]).unwrap();
    let mut bad = support::manifest();
    bad.program.param_bytes = 64;
    assert!(Artifact::write(&path, bad, &[]).is_err());
    let outside = ObjectCode {
        file: MANIFEST_FILE.into(),
        ..object("cpu:portable")
    };
    assert!(Artifact::write(&path, support::manifest(), &[outside]).is_err());
    assert!(Artifact::load(&path).is_ok());
}

/// Code that was not built here is opened only when somebody says so, and a copy of it is no more trusted than it is.
#[test]
fn code_from_elsewhere_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (path, touched) = (dir.path().join("m.odex"), dir.path().join("touched"));
    let code = ObjectCode {
        bytes: c::touching(&touched),
        ..object("cpu:portable")
    };
    Artifact::write(&path, support::manifest(), &[code]).unwrap();
    fs::remove_file(path.join(SIGNATURE_FILE)).unwrap();
    let foreign = Artifact::load(&path).unwrap();
    let copy = foreign.copy_to(&dir.path().join("copy.odex")).unwrap();
    let again = Artifact::load(copy.path()).unwrap();
    let open = |a: &Artifact, unsigned| {
        let opened = a.clone().with(unsigned).device(DeviceChoice::Cpu, Some(1));
        (opened.map(drop), fs::remove_file(&touched).is_ok())
    };
    for a in [&foreign, &copy, &again] {
        assert!(a.not_ours().is_some());
        let (refused, ran) = open(a, Unsigned::Refuse);
        assert!(matches!(refused, Err(ArtifactError::Unsigned { .. })) && !ran);
        let (compiled, ran) = open(a, Unsigned::Compile(compiled_by_c));
        assert!(compiled.is_ok() && !ran);
        let (failed, ran) = open(a, Unsigned::Compile(|_, _, _| Err("no".into())));
        assert!(matches!(failed, Err(ArtifactError::Compile { .. })) && !ran);
        let (_, ran) = open(a, Unsigned::Trust);
        assert!(ran, "the test's own code does nothing");
    }
}

fn compiled_by_c(_: &Artifact, kernels: &[Kernel], _: Target) -> Result<Vec<u8>, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kernels.so");
    c::compile(kernels, &file);
    fs::read(file).map_err(|e| e.to_string())
}

/// What is opened is what was verified, even if the file is exchanged in between.
#[test]
fn code_that_is_exchanged_after_it_was_verified_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (path, touched) = (dir.path().join("m.odex"), dir.path().join("touched"));
    Artifact::write(&path, support::manifest(), &[object("cpu:portable")]).unwrap();
    let artifact = Artifact::load(&path).unwrap();
    fs::write(path.join("kernels.so"), c::touching(&touched)).unwrap();
    assert!(artifact.device(DeviceChoice::Cpu, Some(1)).is_err());
    assert!(!touched.exists());
    let copy = artifact.copy_to(&dir.path().join("copy.odex")).unwrap();
    let code = fs::read(copy.path().join("kernels.so")).unwrap();
    assert_eq!(code, object("cpu:portable").bytes);
}

/// Every way in which a manifest can contradict itself is found on load.
#[test]
fn contradictions_are_found_on_load() {
    let mut list = vec![];
    let mut broken = |change: &dyn Fn(&mut Manifest)| {
        let mut m = support::manifest();
        change(&mut m);
        let e = Artifact::in_memory(m).map(drop).unwrap_err().to_string();
        list.push(
            e.replace("tiny.odex: the manifest contradicts itself: ", "")
                .replace("; build the artifact again", ""),
        );
    };
    fn instr<'a>(m: &'a mut Manifest, entry: &str, site: &str) -> &'a mut odec_program::Instr {
        let (e, site) = (
            m.program.entries.get_mut(entry).unwrap(),
            &support::at(site),
        );
        let at = |i: &&mut odec_program::Instr| m.program.sites[i.site as usize] == *site;
        e.instrs.iter_mut().find(at).unwrap()
    }
    broken(&|m| instr(m, "grad", "embed").site = 99);
    broken(&|m| m.program.maxima.batch = 0);
    broken(&|m| m.program.const_bytes = u64::MAX);
    broken(&|m| m.model.vocab = 0);
    broken(&|m| m.model.context = 0);
    broken(&|m| m.params[1].path = m.params[0].path.clone());
    broken(&|m| m.params[1].offset -= 64);
    broken(&|m| m.params[1].offset += 64);
    broken(&|m| m.params[1].offset += 4);
    broken(&|m| m.params[0].shape = vec![u64::MAX, u64::MAX]);
    broken(&|m| m.constants[0].offset = 48);
    broken(&|m| m.program.kernels[0].symbol.push('0'));
    broken(&|m| instr(m, "forward", "head").kernel = 99);
    broken(&|m| instr(m, "forward", "head").operands.truncate(2));
    broken(&|m| instr(m, "forward", "head").dims.truncate(2));
    broken(&|m| instr(m, "loss", "loss").coeffs.clear());
    broken(&|m| instr(m, "forward", "head").dims[1] = Size::fixed(257));
    broken(&|m| instr(m, "forward", "head").dims[1] = Size::SEQ);
    broken(&|m| {
        instr(m, "forward", "head").dims[0] = Size {
            factor: 2,
            batch: 1,
            seq: 1,
            past: 0,
            recent: 0,
            source: 0,
        }
    });
    broken(&|m| {
        instr(m, "forward", "head").dims[0] = Size {
            factor: u64::MAX,
            batch: 9,
            seq: 9,
            past: 0,
            recent: 0,
            source: 0,
        }
    });
    broken(&|m| instr(m, "forward", "head").operands[0].offset = 1 << 40);
    broken(&|m| instr(m, "forward", "head").operands[0].offset = 2);
    broken(&|m| instr(m, "forward", "head").operands[2].slot = Slot::Output(1));
    broken(&|m| instr(m, "forward", "head").operands[0].slot = Slot::Input(0));
    broken(&|m| instr(m, "forward", "embed").operands[0].slot = Slot::Params);
    broken(&|m| instr(m, "forward", "embed").dims[1] = Size::fixed(255));
    broken(&|m| m.program.real = DType::Bf16);
    broken(&|m| m.program.real = DType::F64);
    broken(&|m| {
        instr(m, "forward", "embed").dims[1] = Size {
            factor: 256,
            batch: 1,
            seq: 0,
            past: 0,
            recent: 0,
            source: 0,
        }
    });
    broken(&|m| instr(m, "grad", "d_logits").operands[2].slot = Slot::Consts);
    broken(&|m| instr(m, "grad", "d_logits").operands[2].offset += 64);
    broken(&|m| instr(m, "grad", "d_head").operands[2] = instr(m, "grad", "d_head").operands[0]);
    broken(&|m| {
        instr(m, "loss", "loss.rows").operands[2] = instr(m, "loss", "loss.rows").operands[0]
    });
    for (slot, offset) in [
        (Slot::Arena, 1 << 40),
        (Slot::Arena, 2),
        (Slot::Input(0), 0),
        (Slot::Output(9), 0),
    ] {
        let guard = Operand::at(slot, offset);
        broken(&|m| instr(m, "grad", "d_logits").guard = Some(guard));
    }
    broken(&|m| m.program.entries.get_mut("forward").unwrap().arena_bytes = 64);
    broken(&|m| m.program.entries.get_mut("loss").unwrap().outputs[0].dtype = DType::I32);
    broken(&|m| m.program.entries.get_mut("loss").unwrap().outputs[0].dtype = DType::Bf16);
    broken(&|m| {
        m.program.entries.get_mut("loss").unwrap().outputs[0].shape =
            vec![odec_program::Dim::Fixed(0)]
    });
    // `d_head` sums over all tokens, `head` has a row for each.
    fn pieces(m: &mut Manifest, pieces: &[(u32, u32, u64)]) {
        let of = |&(first, count, rows): &_| odec_program::Pieces { first, count, rows };
        m.program.entries.get_mut("grad").unwrap().pieces = pieces.iter().map(of).collect();
    }
    broken(&|m| pieces(m, &[(0, 1, 0)]));
    broken(&|m| pieces(m, &[(0, 1, 3)]));
    broken(&|m| pieces(m, &[(0, u32::MAX, 2)]));
    broken(&|m| pieces(m, &[(1, 2, 2), (2, 1, 2)]));
    broken(&|m| {
        let i = instr(m, "grad", "d_logits");
        i.operands[2].row = 1 << 40;
        let e = &m.program.entries["grad"];
        let is = |i: &odec_program::Instr| *m.program.site(i) == support::at("d_logits");
        let at = e.instrs.iter().position(is).unwrap();
        pieces(m, &[(at as u32, 1, 2)]);
    });
    broken(&|m| {
        instr(m, "grad", "d_logits").operands[2].row = 2;
        pieces(m, &[(0, 1, 2)]);
    });
    insta::assert_snapshot!(list.join("\n"));
}

/// Numbers that something would be divided by, or that memory would be asked for, are looked at before either.
#[test]
fn numbers_that_nobody_can_compute_with_are_refused() {
    use odec_program::kernel::{Epilogue, KernelSpec};
    use odec_program::{Body, ExprId};
    let refused = |place: &str, change: &dyn Fn(&mut Manifest)| {
        let mut m = support::manifest();
        change(&mut m);
        for k in &mut m.program.kernels {
            k.symbol = k.spec.symbol();
        }
        let said = Artifact::in_memory(m).map(drop).unwrap_err().to_string();
        assert!(said.contains(place), "{place}: {said}");
    };
    let train = |change: fn(&mut odec_program::manifest::Train)| {
        move |m: &mut Manifest| change(m.train.as_mut().unwrap())
    };
    refused("train: accumulate: 0 is not", &train(|t| t.accumulate = 0));
    refused(
        "sequences in 3",
        &train(|t| (t.batch, t.accumulate) = (4, 3)),
    );
    refused("train: batch: 0", &train(|t| t.batch = 0));
    refused("train: batch", &train(|t| t.batch = u64::MAX));
    refused("train: steps", &train(|t| t.steps = u64::MAX));
    refused("train: held out", &train(|t| t.data.held_out_percent = 100));
    refused(
        "lr is inf",
        &train(|t| {
            let lr = f64::INFINITY;
            t.optimizer = AdamW {
                lr,
                ..AdamW::default()
            }
            .into();
        }),
    );
    refused(
        "betas is 1, not a number from 0 to below 1",
        &train(|t| {
            let betas = (0.9, 1.0);
            t.optimizer = Lion {
                betas,
                ..Lion::default()
            }
            .into();
        }),
    );
    refused(
        "schedule: its floor is 2",
        &train(|t| {
            t.schedule = Linear {
                warmup: 0,
                floor: 2.0,
            }
            .into();
        }),
    );
    refused(
        "schedule: its warmup is",
        &train(|t| {
            t.schedule = InverseSqrt { warmup: u64::MAX }.into();
        }),
    );
    refused("clip is -1", &train(|t| t.clip = Some(-1.0)));
    refused("depths: steps", &|m| {
        m.depths = vec![odec_program::manifest::StepCount::Halting {
            evolve: String::new(),
            max: u64::MAX,
        }]
    });
    refused("are planned", &|m| m.program.maxima.tokens = Some(1));
    refused("scratch", &|m| {
        m.program.entries.get_mut("forward").unwrap().scratch_bytes = 0
    });
    for operands in [i32::MAX as u32, u32::MAX] {
        refused(&format!("its epilogue has {operands} operands"), &|m| {
            let kernels = m.program.kernels.iter_mut();
            for k in kernels {
                if let KernelSpec::Contract(c) = &mut k.spec {
                    let mut body = Body::default();
                    body.konst(0.0);
                    c.epilogue = Some(Epilogue {
                        operands,
                        halves: vec![],
                        uniforms: 0,
                        body,
                        value: ExprId(0),
                    });
                }
            }
        });
    }
    // It walks over more rows than there are bytes, and would for ever.
    refused("a dimension is 35184372088832", &|m| {
        let loss = m.program.entries.get_mut("loss").unwrap();
        let at =
            |i: &&mut odec_program::Instr| m.program.sites[i.site as usize] == support::at("loss");
        let columns = loss.instrs.iter_mut().find(at).unwrap();
        columns.dims[1] = Size::fixed(1 << 45);
    });
}

/// A spec whose own indices are wrong is found too: the symbol is recomputed, so only the check can see it.
#[test]
fn senseless_kernels_are_found_on_load() {
    use odec_program::KernelSpec;
    use odec_program::expr::*;
    let mut list = vec![];
    let mut broken = |kind: &str, change: &dyn Fn(&mut KernelSpec)| {
        let mut m = support::manifest();
        let k = m
            .program
            .kernels
            .iter_mut()
            .find(|k| k.spec.kind() == kind)
            .unwrap();
        change(&mut k.spec);
        k.symbol = k.spec.symbol();
        let e = Artifact::in_memory(m).map(drop).unwrap_err().to_string();
        let e = e.split("itself: ").nth(1).unwrap();
        let (symbol, rest) = e.split_once(": ").unwrap();
        list.push(
            format!("{}: {rest}", symbol.split('_').next().unwrap())
                .replace("; build the artifact again", ""),
        );
    };
    let node = |e: Expr| {
        move |s: &mut KernelSpec| match s {
            KernelSpec::Rows(k) => k.body.nodes.push(e),
            KernelSpec::Columns(k) => k.body.nodes.push(e),
            _ => unreachable!(),
        }
    };
    let load = |operand, row, col| Expr::Load {
        operand,
        access: Access {
            row,
            col,
            stride: 1,
        },
    };
    broken("rows", &node(Expr::Unary(UnaryOp::Neg, ExprId(999))));
    broken("rows", &node(Expr::Uniform(9)));
    broken("rows", &node(Expr::Acc));
    broken("columns", &node(Expr::Reduce(ReduceOp::Sum, ExprId(0))));
    broken("rows", &node(load(9, RowMap::Row, ColMap::Zero)));
    broken("rows", &node(load(0, RowMap::Row, ColMap::repeat(0))));
    broken("rows", &node(load(0, RowMap::Row, ColMap::HalfSwap(3))));
    for (rows, cols) in [(0, 0), (3, 5), (u64::MAX, 2)] {
        let transposed = ColMap::Transposed { rows, cols };
        broken("rows", &node(load(0, RowMap::Row, transposed)));
    }
    broken(
        "rows",
        &node(Expr::Load {
            operand: 0,
            access: Access {
                row: RowMap::Row,
                col: ColMap::Zero,
                stride: u64::MAX,
            },
        }),
    );
    broken("rows", &|s| {
        if let KernelSpec::Rows(k) = s {
            k.stores[0].operand = 77
        }
    });
    broken("rows", &|s| {
        if let KernelSpec::Rows(k) = s {
            k.stores[0].value = ExprId(77)
        }
    });
    broken("rows", &|s| {
        if let KernelSpec::Rows(k) = s {
            k.stores[0].access.row = RowMap::Zero
        }
    });
    broken("rows", &|s| {
        if let KernelSpec::Rows(k) = s {
            k.cols = 0
        }
    });
    broken("pack", &|s| {
        if let KernelSpec::Pack(k) = s {
            k.nr = 0
        }
    });
    broken("contract", &|s| {
        if let KernelSpec::Contract(k) = s {
            k.blocking.kc = 0
        }
    });
    broken("contract", &|s| {
        if let KernelSpec::Contract(k) = s {
            k.blocking.mr = u32::MAX
        }
    });
    broken("contract", &|s| {
        if let KernelSpec::Contract(k) = s {
            k.order = Order::Pairs
        }
    });
    insta::assert_snapshot!(list.join("\n"));
}
