"""`/metrics`: the metrics of this node, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from firesteel.errors import ForbiddenError
from firesteel.metrics.exposition import CONTENT_TYPE, exposition
from firesteel.rest.context import CallerPrincipal, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.security.principals import may_scrape

router = APIRouter(tags=["cluster"])


@router.get(
    "/metrics", response_class=PlainTextResponse, summary="The metrics of this node, in the text format of Prometheus"
)
async def scrape(context: Context, principal: CallerPrincipal) -> Response:
    """Each node reports on itself, the leader also on jobs, queue and engines. For scrapers, admins and viewers of `*`."""
    if not context.configuration.metrics.prometheus:
        raise HttpError(404, "This node does not serve metrics (metrics.prometheus).")
    if not may_scrape(principal):
        raise ForbiddenError(
            f"{principal.name} ({principal.role.value}) may not read metrics, which cover all owners; "
            "make a token with `firesteel cluster token create NAME --role scraper`"
        )
    await context.metrics.collect()
    text = exposition(context.metrics.readings())
    return Response(text.encode(errors="replace"), media_type=CONTENT_TYPE)
