//! Methods on an equation with a known solution, on the reference device.

use crate::systems::options;
use odec_compiler::measure::{
    Curve, Entry, INPUT, MeasureError, OUTPUT, Planned, Problem, library, measure,
};
use odec_runtime::integrate::integrate;
use odec_runtime::reference::ReferenceDevice;
use odec_runtime::{Artifact, Executor};

fn run(p: &Planned) -> Result<Vec<f64>, MeasureError> {
    let artifact = Artifact::in_memory(p.manifest.clone()).expect("the manifest is consistent");
    let device = ReferenceDevice::new(&artifact.manifest().program.kernels);
    let mut x = Executor::new(&artifact, Box::new(device)).unwrap();
    let params = p.matrices.iter().map(|m| (m.path.as_str(), &m.values[..]));
    let params: Vec<(&str, &[f64])> = params.collect();
    Ok(integrate(&mut x, &params, &p.problem.start(), (INPUT, OUTPUT), p.runs).unwrap())
}

fn measured(e: &Entry, problem: Problem) -> Curve {
    measure(e, problem, options(), &mut run).unwrap_or_else(|why| panic!("{}: {why}", e.name))
}

/// One of each kind, on both systems.
#[test]
fn methods_have_the_order_that_is_proved() {
    let all = library().unwrap();
    let names = [
        "rk4",
        "gauss4",
        "ab3",
        "strang",
        "suzuki4",
        "imex_euler",
        "parallel",
        "dormand_prince6",
    ];
    for name in names {
        let e = all.iter().find(|e| e.name == name).unwrap();
        let proved = e.proved.unwrap() as f64;
        let order = measured(e, e.graded().unwrap()).order.unwrap();
        assert!(
            (order - proved).abs() < 0.1,
            "{name}: {order} measured, {proved} proved"
        );
        let general = measured(e, Problem::General).order.unwrap();
        assert!(
            general > proved - 0.1,
            "{name}: {general} measured, {proved} proved"
        );
    }
}
