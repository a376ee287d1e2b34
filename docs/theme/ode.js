// The grammar of `.ode` files for highlight.js, and the blocks that are written in it.
//
// mdBook highlights the languages that it knows before this file is loaded; blocks of the others are left to us.
(function () {
    "use strict";

    // As the rule `keyword` of grammar/odec.pest (compiler/tests/front/docs.rs compares them).
    const KEYWORDS =
        "scheme field model train explore use let learn tableau multistep embedded start step repeat return solve flow " +
        "from in evolve for weights embed order cite keep";
    // Words with a meaning only where they stand.
    const CONTEXTUAL =
        "method as within by sum input output init steps gradient report per channel shared every cycle of data loss optimizer " +
        "schedule ema evaluations patience except batch accumulate clip seed precision memory tune constrain parametrization";
    const CLAIMS =
        "stages evaluations stage_order stiff_order ssp explicit dirk sdirk firk fsal stiffly_accurate A_stable L_stable " +
        "symplectic symmetric zero_stable";
    const FUNCTIONS =
        "increment map adjoint compose power extrapolate average sqrt root ceil floor len exp normalize nonnegative normal " +
        "rmsnorm layernorm attention swiglu gelu relu linear concat sigmoid id dropout time positions decay " +
        "tokens text learned logits adamw cosine lora spectral revolve budget store cross_entropy";

    hljs.registerLanguage("ode", function (hljs) {
        const comment = hljs.COMMENT("//", "$");
        const doc = hljs.COMMENT("///(?!/)", "$", { className: "doctag" });
        const string = { className: "string", begin: '"', end: '"', illegal: "\\n" };
        const number = {
            className: "number",
            begin: /\b\d+(\.\d+)?(e[+-]?\d+)?(%| ?(KiB|MiB|GiB|kB|MB|GB)\b)?/,
            relevance: 0,
        };
        return {
            name: "odec",
            keywords: {
                $pattern: /[A-Za-z_]\w*/,
                keyword: KEYWORDS + " " + CONTEXTUAL,
                literal: CLAIMS,
                built_in: FUNCTIONS,
            },
            contains: [
                doc,
                comment,
                string,
                {
                    beginKeywords: "scheme field model",
                    end: /(?=[({=])/,
                    contains: [{ className: "title", begin: /[A-Za-z_]\w*/ }],
                },
                {
                    begin: /\blayer(?=\s+[A-Za-z_]\w*\s*[(=])/,
                    className: "keyword",
                    starts: { end: /(?=[(=])/, contains: [{ className: "title", begin: /[A-Za-z_]\w*/ }] },
                },
                // `heads: 4`: a label is not the word that it is elsewhere.
                { className: "attr", begin: /\b[A-Za-z_]\w*(?=:)/ },
                number,
                { className: "operator", begin: /\|>/, relevance: 0 },
            ],
        };
    });

    const blocks = document.querySelectorAll("code.language-ode, code.language-model, code.language-train");
    for (const block of blocks) {
        // A part of a model or of a train block is written in the same language.
        block.className = "language-ode";
        hljs.highlightBlock(block);
    }

    // What is typed stands out from what is printed.
    for (const block of document.querySelectorAll("code.language-console")) {
        const lines = block.textContent.split("\n").map((line, n, all) => {
            const span = document.createElement("span");
            span.textContent = n + 1 < all.length ? line + "\n" : line;
            span.className = line.startsWith("$ ") ? "typed" : "";
            return span;
        });
        block.replaceChildren(...lines);
    }
})();
