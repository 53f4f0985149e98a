"""A tool server to which the user signs in, with its own authorisation server: `sign_in_server.py PORT KIND`.

KIND is "yes" (everybody may come in), "no" (nobody may), "short" (tokens that end at once, and can be renewed
once), or "page" (its page to sign in at is no page of the web).
"""

from __future__ import annotations

import secrets
import sys
import time

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl


class Provider:
    """Lets everybody in without a question, and keeps everything in memory."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.renewed = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.kind == "no":
            return construct_redirect_uri(
                str(params.redirect_uri),
                error="access_denied",
                error_description="Not you",
                state=params.state,
            )
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._made(client, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        self.renewed += 1
        return self._made(client, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _made(self, client: OAuthClientInformationFull, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        lives = 1 if self.kind == "short" and not self.renewed else 3600
        self.access[access] = AccessToken(
            token=access, client_id=client.client_id, scopes=scopes, expires_at=int(time.time()) + lives
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes)
        return OAuthToken(
            access_token=access, expires_in=lives, refresh_token=refresh, scope=" ".join(scopes) or None
        )


def main() -> None:
    port, kind = int(sys.argv[1]), sys.argv[2]
    here = f"http://127.0.0.1:{port}"
    provider = Provider(kind)
    server = MCPServer(
        "closed",
        auth_server_provider=provider,  # type: ignore[arg-type]  # what it does not have is not used
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(here),
            resource_server_url=AnyHttpUrl(f"{here}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
        ),
    )

    @server.tool(structured_output=False)
    def renewed() -> str:
        """How often tokens were renewed, and how many programs are registered."""
        return f"{provider.renewed} {len(provider.clients)}"

    server.run("streamable-http", port=port)


if __name__ == "__main__":
    main()
