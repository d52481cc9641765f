"""The server: samples clients, adds up their updates with noise, and prints what it guarantees them."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from digits.task import model, public_images
from privet.denoise import LaplacianSmoothing
from privet.federated import Server, accuracy, client_plan, trained_weights, with_weights
from privet.federated.flower import PrivateStrategy
from privet.privacy import Budget

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and print the guarantee."""
    told = context.run_config
    clients = int(told["clients"])
    budget = Budget(float(told["epsilon"]), float(told["delta"]))
    plan = client_plan(
        budget,
        n_clients=clients,
        clients_per_round=int(told["clients-per-round"]),
        rounds=int(told["rounds"]),
        clip_norm=float(told["clip-norm"]),
    )
    smoothing = float(told["smoothing"])
    server = Server(
        plan,
        trained_weights(model()),
        clients,
        delta=budget.delta,
        denoiser=LaplacianSmoothing(smoothing) if smoothing else None,
    )
    score = accuracy(*public_images())
    strategy = PrivateStrategy(
        server,
        timeout=float(told["timeout"]),
        min_clients=clients,
        evaluate=lambda weights: score(with_weights(model(), weights)),
        save=str(told["save"]) or None,
        resume=bool(told["save"]),
    )
    result = strategy.start(grid)
    print(f"Accuracy on public images: {result.history[-1].score:.3f}")
    print(result.guarantee)
