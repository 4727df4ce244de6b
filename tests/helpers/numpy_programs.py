"""Programs as they stand in NumPy courses. Each takes the namespace, ``numpy`` or ``fad.numpy``, as ``np``.

A program returns an array, a number, or a tuple of these. Those of `DIFFERENTIABLE` take one number besides.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DIFFERENTIABLE", "PROGRAMS", "WRITES_TO_SAVED"]


def heat(np: Any, middle: Any = 1.0) -> Any:
    """The heat equation on a rod, explicit in time, in place."""
    u = np.zeros(9)
    u[4] = middle
    for _ in range(6):
        u[1:-1] += 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def kalman(np: Any, noise: Any = 0.1) -> Any:
    """A Kalman filter for position and velocity, from positions alone."""
    measured = np.array([0.1, 0.9, 2.2, 2.9, 4.1])
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    H = np.array([[1.0, 0.0]])
    Q = 0.01 * np.eye(2)
    R = np.eye(1) * noise
    x, P = np.zeros(2), np.eye(2)
    path = np.empty((len(measured), 2))
    for k in range(len(measured)):
        x, P = F @ x, F @ P @ F.T + Q
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        x = x + K @ (measured[k] - H @ x)
        P = (np.eye(2) - K @ H) @ P
        path[k] = x
    return path, P


def leapfrog(np: Any, speed: Any = 1.0) -> Any:
    """A planet around a sun, by the leapfrog method."""
    steps, dt = 20, 0.05
    position, velocity = np.zeros((steps + 1, 2)), np.zeros(2)
    position[0, 0] = 1.0
    velocity[1] = speed

    def acceleration(r: Any) -> Any:
        return -r / np.sum(r**2) ** 1.5

    for n in range(steps):
        velocity += 0.5 * dt * acceleration(position[n])
        position[n + 1] = position[n] + dt * velocity
        velocity += 0.5 * dt * acceleration(position[n + 1])
    return position


def ising(np: Any) -> Any:
    """The Ising model by Metropolis steps, with a given table of random numbers."""
    L, beta = 4, 0.6
    table = (np.arange(3 * 48).reshape(48, 3) * 0.618034) % 1.0
    spins = np.ones((L, L), dtype=int)
    for i, j, chance in table.tolist():
        i, j = int(i * L), int(j * L)
        around = spins[(i + 1) % L, j] + spins[i - 1, j] + spins[i, (j + 1) % L] + spins[i, j - 1]
        change = 2 * spins[i, j] * around
        if change <= 0 or chance < np.exp(-beta * change):
            spins[i, j] *= -1
    return spins, spins.mean()


def k_means(np: Any, shift: Any = 0.0) -> Any:
    """Lloyd's algorithm, with two clusters."""
    points = np.array([[0.0, 0.1], [0.2, 0.0], [0.1, 0.3], [3.0, 3.1], [2.9, 3.3], [3.2, 2.8]])
    points[:3] += shift
    centers = points[:2].copy()
    for _ in range(4):
        distance = np.sum((points[:, None] - centers[None]) ** 2, axis=-1)
        labels = np.argmin(distance, axis=1)
        for k in range(2):
            centers[k] = points[labels == k].mean(axis=0)
    return centers


def life(np: Any) -> Any:
    """Conway's game of life: a glider."""
    grid = np.zeros((6, 6), dtype=int)
    grid[0, 1] = grid[1, 2] = grid[2, :3] = 1
    for _ in range(5):
        count = sum(
            np.roll(np.roll(grid, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j
        )
        new = np.zeros_like(grid)
        new[(count == 3) | ((grid == 1) & (count == 2))] = 1
        grid[:] = new
    return grid


def jacobi(np: Any, load: Any = 1.0) -> Any:
    """Jacobi's iteration for Poisson's equation on a square."""
    n = 6
    u, b = np.zeros((n, n)), np.zeros((n, n))
    b[n // 2, n // 2] = load
    for _ in range(10):
        old = u.copy()
        u[1:-1, 1:-1] = 0.25 * (
            old[1:-1, 2:] + old[1:-1, :-2] + old[2:, 1:-1] + old[:-2, 1:-1] + b[1:-1, 1:-1]
        )
    return u


def gauss_seidel(np: Any, right: Any = 1.0) -> Any:
    """Gauss and Seidel's iteration, row by row."""
    A = np.array([[4.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 4.0]])
    b = np.array([1.0, 2.0, 0.0])
    b[2] = right
    x = np.zeros_like(b)
    for _ in range(8):
        for i in range(3):
            x[i] = (b[i] - A[i, :i] @ x[:i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


def power_iteration(np: Any, corner: Any = 2.0) -> Any:
    """The largest eigenvalue, and its vector."""
    A = np.array([[0.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 1.0]])
    A[0, 0] = corner
    v = np.ones(3)
    for _ in range(12):
        v = A @ v
        v /= np.linalg.norm(v)
    return v @ A @ v, v


def mandelbrot(np: Any) -> Any:
    """How many steps it takes to escape, with a mask."""
    y, x = np.ogrid[-1.2:1.2:7j, -2:0.6:9j]
    c = x + 1j * y
    z = np.zeros(c.shape, dtype=complex)
    count = np.zeros(c.shape, dtype=int)
    for _ in range(8):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 + c[inside]
        count[inside] += 1
    return count


def moving_average(np: Any, last: Any = 7.0) -> Any:
    """With the sum of all values so far."""
    values = np.array([1.0, 2.0, 4.0, 3.0, 5.0, 0.0])
    values[-1] = last
    total = np.cumsum(values)
    total[3:] = total[3:] - total[:-3].copy()
    return total[2:] / 3


def euler(np: Any, rate: Any = 0.5) -> Any:
    """Euler's method for predator and prey."""
    t = np.linspace(0, 2, 21)
    y = np.zeros((len(t), 2))
    y[0] = [1.0, 0.5]
    for n in range(len(t) - 1):
        dt = t[n + 1] - t[n]
        prey, predator = y[n]
        y[n + 1, 0] = prey + dt * (rate * prey - predator * prey)
        y[n + 1, 1] = predator + dt * (predator * prey - 0.3 * predator)
    return y


def lu(np: Any, pivot: Any = 4.0) -> Any:
    """The LU decomposition by loops, in place."""
    A = np.array([[0.0, 3.0, 2.0], [2.0, 5.0, 1.0], [1.0, 1.0, 6.0]])
    A[0, 0] = pivot
    n = len(A)
    L, U = np.identity(n), A.copy()
    for k in range(n - 1):
        for i in range(k + 1, n):
            L[i, k] = U[i, k] / U[k, k]
            U[i, k:] -= L[i, k] * U[k, k:]
    return L, U


def floyd_warshall(np: Any, edge: Any = 2.0) -> Any:
    """The shortest ways between all pairs."""
    d = np.full((4, 4), np.inf)
    for i, j, length in [(0, 1, 3.0), (1, 3, 1.0), (3, 0, 2.5), (2, 0, 1.5)]:
        d[i, j] = length
    d[1, 2] = edge
    d[np.arange(4), np.arange(4)] = 0.0
    for k in range(4):
        d = np.minimum(d, d[:, k, None] + d[None, k, :])
    return d


def perceptron(np: Any) -> Any:
    """Rosenblatt's rule on the logical or."""
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float)
    y = np.array([-1, 1, 1, 1])
    X = np.hstack([X, np.ones((4, 1))])
    w = np.zeros(3)
    mistakes = []
    for _ in range(6):
        wrong = 0
        for xi, yi in zip(X, y, strict=True):
            if yi * (w @ xi) <= 0:
                w += 0.5 * yi * xi
                wrong += 1
        mistakes.append(wrong)
    return w, np.array(mistakes)


def sieve(np: Any) -> Any:
    """The sieve of Eratosthenes."""
    prime = np.ones(50, dtype=bool)
    prime[:2] = False
    for k in range(2, 8):
        if prime[k]:
            prime[k * k :: k] = False
    return np.nonzero(prime)[0]


def regression(np: Any, slope: Any = 2.0) -> Any:
    """A line fitted by gradient descent."""
    x = np.linspace(0.0, 1.0, 5)
    X = np.ones((5, 2))
    X[:, 1] = x
    target = 0.5 + slope * x
    w = np.zeros(2)
    for _ in range(15):
        w -= 0.3 * 2 / len(x) * X.T @ (X @ w - target)
    return w


def wave(np: Any, courant: Any = 0.5) -> Any:
    """The wave equation: three layers of time in one array, with ends that reflect."""
    steps, points = 8, 10
    u = np.zeros((steps, points))
    x = np.linspace(0, 1, points)
    u[0] = np.exp(-((x - 0.5) ** 2) / 0.02)
    u[1] = u[0]
    for n in range(1, steps - 1):
        u[n + 1, 1:-1] = (
            2 * u[n, 1:-1] - u[n - 1, 1:-1]
            + courant**2 * (u[n, 2:] - 2 * u[n, 1:-1] + u[n, :-2])
        )  # fmt: skip
        u[n + 1, [0, -1]] = u[n + 1, [1, -2]]
    return u


def pagerank(np: Any, damping: Any = 0.85) -> Any:
    """How often a walker over links comes to each page."""
    links = [(0, 1), (0, 2), (1, 2), (2, 0), (3, 2)]
    M = np.zeros((4, 4))
    for source, target in links:
        M[target, source] = 1
    M /= M.sum(axis=0)
    rank = np.full(4, 1 / 4)
    for _ in range(10):
        rank = damping * M @ rank + (1 - damping) / 4
    order = np.argsort(rank)[::-1]
    return rank, order


def forward_backward(np: Any, stay: Any = 0.7) -> Any:
    """What a hidden Markov model's states were, from what was seen."""
    A = np.array([[0.0, 0.0], [0.4, 0.6]])
    A[0] = [stay, 1 - stay]
    B = np.array([[0.9, 0.1], [0.2, 0.8]])
    seen = [0, 1, 0, 0]
    T = len(seen)
    alpha, beta = np.zeros((T, 2)), np.ones((T, 2))
    alpha[0] = np.array([0.5, 0.5]) * B[:, seen[0]]
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ A) * B[:, seen[t]]
    for t in reversed(range(T - 1)):
        beta[t] = A @ (B[:, seen[t + 1]] * beta[t + 1])
    gamma = alpha * beta
    gamma /= gamma.sum(axis=1, keepdims=True)
    return gamma, np.log(alpha[-1].sum())


def edit_distance(np: Any, change: Any = 1.0) -> Any:
    """Levenshtein's distance of two words, by dynamic programming."""
    a, b = "kitten", "sitting"
    D = np.zeros((len(a) + 1, len(b) + 1))
    D[:, 0] = np.arange(len(a) + 1)
    D[0, :] = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else change
            D[i, j] = min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + cost)
    return D


def rule_thirty(np: Any) -> Any:
    """Wolfram's cellular automaton, by a table."""
    table = np.array([int(bit) for bit in f"{30:08b}"[::-1]])
    cells = np.zeros((6, 13), dtype=int)
    cells[0, 6] = 1
    for t in range(5):
        row = cells[t]
        cells[t + 1] = table[4 * np.roll(row, 1) + 2 * row + np.roll(row, -1)]
    return cells


PROGRAMS = [
    heat, kalman, leapfrog, ising, k_means, life, jacobi, gauss_seidel, power_iteration, mandelbrot,
    moving_average, euler, lu, floyd_warshall, perceptron, sieve, regression, wave, pagerank,
    forward_backward, edit_distance, rule_thirty,
]  # fmt: skip
# With the number at which they are differentiated.
DIFFERENTIABLE = [
    (heat, 1.5), (kalman, 0.2), (leapfrog, 1.1), (jacobi, 2.0), (gauss_seidel, 1.5),
    (power_iteration, 2.5), (moving_average, 6.0), (euler, 0.6), (lu, 4.5), (floyd_warshall, 2.5),
    (regression, 1.5), (wave, 0.6), (pagerank, 0.8), (forward_backward, 0.6),
]  # fmt: skip
# They write to what the backward pass needs, which is an error by default, as in PyTorch.
WRITES_TO_SAVED = [leapfrog, power_iteration, euler, lu, forward_backward]
