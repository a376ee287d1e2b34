//! SVG elements in the style of the training charts: colours are classes, so that a dark page gets a dark picture.

use std::fmt::Write;

const STYLE: &str = "\
    .page{fill:#fcfcfb}.ink{fill:#1f2328}.soft{fill:#656d76}.grid{stroke:#e4e4e0}.axis{stroke:#8c959f}.rule{stroke:#1f2328}\
    .line{stroke:#2a78d6}.band{fill:#2a78d6;fill-opacity:.16}.dot{fill:#d9541e;stroke:#fcfcfb}.held{stroke:#d9541e}\
    @media(prefers-color-scheme:dark){.page{fill:#16181c}.ink{fill:#e9eaec}.soft{fill:#9aa2ad}\
    .grid{stroke:#2b2f36}.axis{stroke:#6b7480}.rule{stroke:#e9eaec}.line{stroke:#5aa2f2}.band{fill:#5aa2f2}\
    .dot{fill:#ff8a55;stroke:#16181c}.held{stroke:#ff8a55}}";

/// Pixels that a text of some size takes, about.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}

#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Elements being written.
#[derive(Default)]
pub struct Sheet {
    out: String,
}

impl Sheet {
    fn put(&mut self, args: std::fmt::Arguments) {
        writeln!(self.out, "{args}").expect("strings take everything");
    }

    pub fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: Anchor, size: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
        ));
    }

    /// The picture's name.
    pub fn heading(&mut self, x: f64, y: f64, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text class=\"ink\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"16\" font-weight=\"600\">{text}</text>"
        ));
    }

    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.put(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Closed curves; where they enclose each other, every second one is a hole.
    pub fn filled(&mut self, class: &str, d: &str) {
        self.put(format_args!(
            "<path class=\"{class}\" fill-rule=\"evenodd\" d=\"{d}\"/>"
        ));
    }

    pub fn curve(&mut self, class: &str, dashed: bool, d: &str) {
        let dash = if dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        self.put(format_args!(
            "<path class=\"{class}\" fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{dash} d=\"{d}\"/>"
        ));
    }

    /// A thin curve, of which many lie over each other.
    pub fn path(&mut self, class: &str, d: &str) {
        self.put(format_args!(
            "<path class=\"{class}\" fill=\"none\" stroke-width=\".9\" stroke-opacity=\".55\" stroke-linejoin=\"round\" d=\"{d}\"/>"
        ));
    }

    /// A small filled circle.
    pub fn spot(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.put(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
        ));
    }

    /// The same, in one colour on all pages.
    pub fn coloured_path(&mut self, colour: &str, d: &str) {
        self.put(format_args!(
            "<path stroke=\"{colour}\" fill=\"none\" stroke-width=\"1.2\" stroke-opacity=\".7\" stroke-linejoin=\"round\" d=\"{d}\"/>"
        ));
    }

    pub fn coloured_spot(&mut self, colour: &str, (x, y): (f64, f64), radius: f64) {
        self.put(format_args!(
            "<circle fill=\"{colour}\" fill-opacity=\".7\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
        ));
    }

    pub fn dot(&mut self, (x, y): (f64, f64)) {
        self.put(format_args!(
            "<circle class=\"dot\" stroke-width=\"1.5\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
        ));
    }

    /// The whole picture; `title` is for those who cannot see it.
    pub fn finish(self, width: f64, height: f64, title: &str) -> String {
        let (w, h) = (width.ceil(), height.ceil());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\" role=\"img\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{w}\" height=\"{h}\"/>\n{}</svg>\n",
            escaped(title),
            self.out
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
