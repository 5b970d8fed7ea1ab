"""The pipeline `shop`: orders arrive as JSON, are checked, and are added up per item.

Each tier's transform has its own module. The site file names this pipeline as `shop`.
"""

from shop.orders import checked
from shop.sales import SALES, sold
from sluice import Delivery, Fields, Kind, Mode, Pipeline, Quantum, Stream, Tier

RAW = Stream("raw")
ORDERS = Stream("orders", "id string, item string, count bigint", Fields("item"))

SLOT = Quantum(cpu=1, memory=750, threads=4, disk=2048)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1, disk=2048)

PIPELINE = Pipeline(
    tiers=(
        Tier(
            "orders",
            Kind.ENTRY,
            (RAW,),
            checked,
            outputs=(ORDERS,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "sales",
            Kind.OUTBOUND,
            (ORDERS,),
            sold,
            sink=SALES,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
