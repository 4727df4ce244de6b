"""Names of fad that stand as code in a sentence lead to their page in the reference."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.transforms import SphinxTransform

# A public name, with or without a call: `fad.grad`, `fad.grad(f)(x)`.
NAME = re.compile(r"(fad(?:\.\w+)+)(?:\(.*\))?")


class LinkNames(SphinxTransform):
    """Wrap such code in a reference, which is shown as before where there is no page."""

    default_priority = 400  # before references are resolved

    def apply(self, **_: object) -> None:
        for code in list(self.document.findall(nodes.literal)):
            found = NAME.fullmatch(code.astext())
            if found and not isinstance(code.parent, (nodes.reference, nodes.title, pending_xref)):
                link = pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=found[1], refwarn=False
                )
                code.replace_self(link)
                link += code
