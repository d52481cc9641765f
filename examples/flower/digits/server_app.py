"""The server, which samples clients, sums their updates with noise, and prints the guarantee."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from digits.task import model, public_images
from privet.denoise import LaplacianSmoothing
from privet.federated import Server, accuracy, client_plan, trained_weights, with_weights
from privet.federated.flower import PrivateStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and print accuracy and guarantee."""
    settings = context.run_config
    clients = int(settings["clients"])
    plan = client_plan(
        (float(settings["epsilon"]), float(settings["delta"])),
        n_clients=clients,
        clients_per_round=int(settings["clients-per-round"]),
        rounds=int(settings["rounds"]),
        clip_norm=float(settings["clip-norm"]),
    )
    smoothing = float(settings["smoothing"])
    server = Server(
        plan,
        trained_weights(model()),
        clients,
        denoiser=LaplacianSmoothing(smoothing) if smoothing else None,
    )
    score = accuracy(*public_images())
    strategy = PrivateStrategy(
        server,
        timeout=float(settings["timeout"]),
        min_clients=clients,
        evaluate=lambda weights: score(with_weights(model(), weights)),
        save=str(settings["save"]) or None,
        resume=bool(settings["save"]),
    )
    result = strategy.start(grid)
    print(f"Accuracy on public images: {result.history[-1].score:.3f}")
    print(result.guarantee)
