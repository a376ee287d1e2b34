//! Tableaus as LaTeX arrays, modified equations below them.

use super::modified::ModifiedEquation;
use super::report::Report;
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::glm::Glm;

/// The tableau, as it is written where its stages are iterated, and the modified equation, or the matrices of a general linear method; `None`: there is
/// neither.
pub fn latex(r: &Report) -> Option<String> {
    if let (Err(_), Some((g, _))) = (&r.tableau, &r.general) {
        return Some(matrices(&g.glm));
    }
    let t = match &r.implicit {
        Some((t, _)) => t,
        None => r.tableau.as_ref().ok()?,
    };
    let modified = r.modified.as_ref().map(ModifiedEquation::latex);
    Some(array(t) + &modified.unwrap_or_default())
}

/// `[A U; B V]`.
fn matrices(m: &Glm) -> String {
    let columns = ["c".repeat(m.stages()), "c".repeat(m.values())];
    let mut out = format!("\\left[\\begin{{array}}{{{}}}\n", columns.join("|"));
    let rows = |left: &[Vec<Exact>], right: &[Vec<Exact>]| -> String {
        let cells = |(a, b): (&Vec<Exact>, &Vec<Exact>)| {
            let cells: Vec<String> = a.iter().chain(b).map(number).collect();
            format!("  {} \\\\\n", cells.join(" & "))
        };
        left.iter().zip(right).map(cells).collect()
    };
    out += &rows(&m.a, &m.u);
    out += "  \\hline\n";
    out += &rows(&m.b, &m.v);
    out + "\\end{array}\\right]\n"
}

/// `c | A`, `b`; with several fields one block for each.
fn array(t: &Tableau) -> String {
    let (points, _) = t.points();
    let (parts, nodes) = (t.parts(), t.nodes());
    let columns: Vec<String> = parts.iter().map(|p| "c".repeat(p.used.len())).collect();
    let mut out = format!("\\begin{{array}}{{c|{}}}\n", columns.join("|"));
    let mut line = |first: String, cells: Vec<String>| {
        out += &format!("  {first} & {} \\\\\n", cells.join(" & "));
    };
    if parts.len() > 1 {
        let head = parts.iter().flat_map(|p| {
            let rest = std::iter::repeat_n(String::new(), p.used.len().saturating_sub(1));
            [format!("\\text{{{}}}", p.field)].into_iter().chain(rest)
        });
        line(String::new(), head.collect());
    }
    for (i, point) in points.iter().enumerate() {
        let cells = parts
            .iter()
            .flat_map(|p| p.used.iter().map(move |j| &p.a[i][*j]));
        let first = match parts.len() {
            1 => number(&nodes[*point]),
            _ => format!("Y_{{{}}}", i + 1),
        };
        line(first, cells.map(number).collect());
    }
    let weights = parts
        .iter()
        .flat_map(|p| p.used.iter().map(move |j| &p.b[*j]));
    let mut last = vec![weights.map(number).collect::<Vec<_>>()];
    let partner = parts.iter().map(|p| p.embedded.as_ref().map(|b| (p, b)));
    if let Some(partner) = partner.collect::<Option<Vec<_>>>() {
        let cells = partner
            .iter()
            .flat_map(|(p, b)| p.used.iter().map(move |j| &b[*j]));
        last.push(cells.map(number).collect());
    }
    out += "  \\hline\n";
    for cells in last {
        out += &format!("   & {} \\\\\n", cells.join(" & "));
    }
    out + "\\end{array}\n"
}

/// `\tfrac{1}{2}`; sums and roots as they are printed, with their roots in LaTeX.
pub(super) fn number(x: &Exact) -> String {
    if let Some(q) = x.as_rational() {
        let (n, d) = (q.numer(), q.denom());
        if d == &1.into() {
            return n.to_string();
        }
        let sign = if x.is_negative() { "-" } else { "" };
        return format!("{sign}\\tfrac{{{}}}{{{d}}}", n.magnitude());
    }
    let mut text = x.to_string().replace('*', " ");
    // Inner roots first: the last one has no other inside.
    while let Some(at) = text.rfind("sqrt(") {
        let Some(close) = text[at..].find(')') else {
            break;
        };
        let inside = text[at + 5..at + close].to_string();
        text.replace_range(at..=at + close, &format!("\\sqrt{{{inside}}}"));
    }
    while let Some(at) = text.rfind("root(") {
        let Some(close) = text[at..].find(')') else {
            break;
        };
        let inside = text[at + 5..at + close].to_string();
        let (of, degree) = inside.split_once(", ").unwrap_or((&inside, "2"));
        let root = match of.contains('x') {
            true => format!("\\operatorname{{root}}({inside})"),
            false => format!("\\sqrt[{degree}]{{{of}}}"),
        };
        text.replace_range(at..=at + close, &root);
    }
    with_exponents(&text)
}

/// `x^12` as `x^{12}`.
fn with_exponents(text: &str) -> String {
    let mut parts = text.split('^');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &part[..part.len() - rest.len()];
        out += &format!("^{{{digits}}}{rest}");
    }
    out
}
