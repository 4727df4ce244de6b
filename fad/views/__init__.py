"""Views: Tensors that show a part of another, read by running again how they were made from it.

NOTE [views by replay]

    b = fad.tensor([1.0, 2.0, 3.0])
    v = b[1:]
    b[2] = 7.0
    v[0] = 5.0
    assert v.tolist() == [5.0, 7.0] and b.tolist() == [1.0, 5.0, 7.0]

Arrays are immutable, so a view cannot point into the memory of its base. It refers to its base and the
chain of steps that lead from the base to it. A write to a view replays the chain in reverse: it
makes a new value for the base (see `fad.views.inplace`), and counts up the version that all aliases of the
base share. A view that is read and finds its version behind replays the chain on the base, once, and
so gets its value *and* its history: the nodes of the replayed steps lead to whatever the base's
history is by then. XLA back ends do the same in place of strides.

The attributes of a Tensor that has a `Link` look at the version first; for all others that is one
look at ``meta``.

A detached Tensor shares the value but not the history. It and the Tensor it came from are *peers*:
each has a history of its own, and both take their value from the one without history (`Storage.data`).
"""
