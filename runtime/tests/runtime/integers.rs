//! Parameters that no integers are made of.

use crate::support::{self, WIDTH};
use odec_runtime::infer::quantized::with_parameters_of;
use odec_runtime::{Artifact, DeviceChoice, Executor, State};

#[test]
fn numbers_that_are_not_finite_and_other_models_are_refused() {
    let artifact = Artifact::in_memory(support::manifest()).unwrap();
    let device = || artifact.device(DeviceChoice::Reference, None).unwrap();
    let mut x = Executor::new(&artifact, device()).unwrap();
    assert!(with_parameters_of(&mut x, &artifact, device()).is_ok());

    let mut renamed = support::manifest();
    renamed.params[0].path += ".renamed";
    let other = Artifact::in_memory(renamed).unwrap();
    let said = |x: &mut Executor, of: &Artifact| {
        let refused = with_parameters_of(x, of, device());
        refused.err().expect("it is refused").to_string()
    };
    let of_other = said(&mut x, &other);
    assert!(of_other.contains("not those of the model that its source gives now"));

    for bad in [f32::NAN, f32::NEG_INFINITY] {
        x.state_mut(State::Params).f32()[WIDTH as usize] = bad;
        let said = said(&mut x, &artifact);
        let want = "parameter embed.weight holds an infinity or a NaN";
        assert!(said.starts_with(want), "{said}");
    }
}
