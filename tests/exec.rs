//! `odec exec`: one entry on tensors from a file, of a model's source as of its artifact; what does not fit is said.

mod place;

#[cfg(feature = "mlir")]
use odec_library::shipped;
use place::{Place, TINY};

/// Tensors for `exec`: every parameter 0.01, and what is given.
fn inputs(place: &Place, model: &str, given: &[(&str, &[usize], &[i32])]) {
    use safetensors::tensor::{Dtype, TensorView};
    let params: serde_json::Value =
        serde_json::from_str(&place.good(&["build", model, "--emit", "params"])).expect("JSON");
    let mut all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for p in params.as_array().expect("a list") {
        let shape = p["shape"].as_array().expect("a shape").iter();
        let shape: Vec<usize> = shape
            .map(|n| n.as_u64().expect("a size") as usize)
            .collect();
        let bytes = 0.01f32.to_le_bytes().repeat(shape.iter().product());
        all.push((
            p["path"].as_str().expect("a path").into(),
            Dtype::F32,
            shape,
            bytes,
        ));
    }
    for (name, shape, values) in given {
        let bytes = values.iter().flat_map(|n| n.to_le_bytes()).collect();
        all.push(((*name).into(), Dtype::I32, shape.to_vec(), bytes));
    }
    let views = all.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor");
        (name.clone(), view)
    });
    let to = place.path().join("in.safetensors");
    safetensors::serialize_to_file(views, None, &to).expect("written");
}

/// What a model draws in training is an input of `exec`, said by name and shape.
#[test]
fn exec_takes_numbers_of_steps_and_keys() {
    let place = Place::new();
    let drawn = TINY
        .replace("iie(layer, r: 1)", "core: iie(layer, r: 1)")
        .replace(
            "for 2 steps",
            "for random(log_normal_poisson(mean: 2), max: 3) steps",
        )
        .replace("weights per step", "weights shared")
        .replace("swiglu(hidden: 24)", "swiglu(hidden: 24) |> dropout(10%)");
    place.write("drawn.ode", &drawn);
    let tokens: &[i32] = &[1, 2, 3, 4, 5, 6];
    let (shape, device): (&[usize], _) = (&[2, 3], "reference");
    let words = |entry, inside: bool| {
        let mut args = vec![
            "exec",
            "drawn.ode",
            "--entry",
            entry,
            "--inputs",
            "in.safetensors",
        ];
        args.extend(["--outputs", "out.safetensors", "--device", device]);
        args.extend(inside.then_some("--interpret"));
        args
    };
    let both = [("tokens", shape, tokens), ("targets", shape, tokens)];
    let steps = |n: &'static [i32]| ("core.steps", &[1][..], n);
    let noise = ("noise", &[1][..], &[7][..]);
    let given = |more: &[(&str, &[usize], &[i32])]| {
        inputs(&place, "drawn.ode", &[&both[..], more].concat())
    };

    given(&[noise]);
    let (code, said) = place.bad(&words("grad", false));
    assert_eq!(code, 1);
    assert!(
        said.contains(
            "input `core.steps` is missing; it is [1] of i32 or i64: the number of steps"
        ),
        "{said}"
    );
    given(&[steps(&[2])]);
    let (_, said) = place.bad(&words("grad", false));
    assert!(
        said.contains("input `noise` is missing; it is [1] of i32 or i64: the key"),
        "{said}"
    );
    for inside in [false, true] {
        given(&[noise, steps(&[4])]);
        let (_, said) = place.bad(&words("grad", inside));
        assert!(
            said.contains("`core.steps` is 4; the number of steps must be from 1 to 3"),
            "{said}"
        );
        given(&[noise, steps(&[2])]);
        place.good(&words("grad", inside));
    }
    // One file serves all entries.
    place.good(&words("loss", false));
    place.good(&words("forward", false));
}

/// A loss over hidden tokens needs one.
#[test]
fn exec_refuses_a_masked_loss_without_a_hidden_token() {
    let place = Place::new();
    let masked = TINY
        .replace("vocab: 256", "vocab: 257")
        .replace(", causal, rope", "")
        .replace("loss      cross_entropy", "loss      masked(rate: 15%)");
    place.write("masked.ode", &masked);
    let words = |more: &[&'static str]| {
        let mut args = vec![
            "exec",
            "masked.ode",
            "--inputs",
            "in.safetensors",
            "--outputs",
            "out.safetensors",
        ];
        args.extend(["--device", "reference"]);
        args.extend(more);
        args
    };
    let with = |tokens: &[i32]| {
        let all: [(&str, &[usize], &[i32]); 2] = [
            ("tokens", &[1, 3], tokens),
            ("targets", &[1, 3], &[1, 2, 3]),
        ];
        inputs(&place, "masked.ode", &all);
    };
    with(&[1, 2, 3]);
    for more in [
        &["--entry", "loss"][..],
        &["--entry", "grad"],
        &["--entry", "loss", "--interpret"],
    ] {
        let (code, said) = place.bad(&words(more));
        assert_eq!(code, 1);
        assert!(
            said.contains("no token is masked, so there is no loss"),
            "{said}"
        );
    }
    place.good(&words(&["--entry", "forward"]));
    with(&[1, 256, 3]);
    place.good(&words(&["--entry", "loss"]));
}

/// Of a source, an entry is built alone. Its numbers are those of an artifact with all of them, and one file of tensors serves all.
#[cfg(feature = "mlir")]
#[test]
fn an_entry_alone_gives_the_numbers_of_the_artifact() {
    let place = Place::new();
    place.write("translator.ode", shipped::text("translator"));
    place.good(&["build", "translator.ode", "-o", "all.odex"]);
    let (tokens, source): (&[i32], &[i32]) = (&[1, 2, 3], &[4, 5, 6, 7, 8]);
    let given: [(&str, &[usize], &[i32]); 3] = [
        ("source", &[1, 5], source),
        ("tokens", &[1, 3], tokens),
        ("targets", &[1, 3], tokens),
    ];
    inputs(&place, "translator.ode", &given);
    for entry in ["forward", "loss", "grad"] {
        let [alone, all] = ["translator.ode", "all.odex"].map(|model| {
            let words = [
                "exec",
                model,
                "--entry",
                entry,
                "--inputs",
                "in.safetensors",
            ];
            place.good(&[&words[..], &["--outputs", "out.safetensors"]].concat());
            std::fs::read(place.path().join("out.safetensors")).expect("tensors")
        });
        assert!(alone == all, "{entry}");
    }
}
