"""The one settings file. Everything that differs between machines comes from the environment.

Names begin with HALCYON_, but for DATABASE_URL and VALKEY_URL; each may also be given as
NAME_FILE. Unset addresses mean the embedded servers under HALCYON_VAR (default `var/`).
`docs/reference/settings.md` lists them all.
"""

import secrets
from pathlib import Path

import plotly
from django.utils.csp import CSP

from halcyon_site import env
from halcyon_site.embedded.places import places

BASE_DIR = Path(__file__).resolve().parent.parent

# -- where this installation keeps its things ------------------------------------------------

HALCYON_VAR = Path(env.text("HALCYON_VAR", str(BASE_DIR / "var"))).expanduser().resolve()
_embedded = places(HALCYON_VAR)
DATABASE_URL = env.text("DATABASE_URL") or _embedded.database_url
VALKEY_URL = env.redis_client(env.text("VALKEY_URL") or _embedded.valkey_url)
HALCYON_EMBEDDED_POSTGRES = not env.text("DATABASE_URL")
HALCYON_EMBEDDED_VALKEY = not env.text("VALKEY_URL")


def _secret_key() -> str:
    """The key from the environment, else one made on first start and kept beside the data."""
    given = env.text("HALCYON_SECRET_KEY")
    if given:
        return given
    path = HALCYON_VAR / "secret_key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".secret_key.{secrets.token_hex(8)}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(64))
        try:
            path.hardlink_to(fresh)  # atomic: of several first starts, one wins
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text().strip()


SECRET_KEY = _secret_key()
SECRET_KEY_FALLBACKS = env.items("HALCYON_SECRET_KEY_FALLBACKS")
DEBUG = env.boolean("HALCYON_DEBUG")
ALLOWED_HOSTS = env.items("HALCYON_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env.items("HALCYON_CSRF_TRUSTED_ORIGINS")

# -- what it is made of ----------------------------------------------------------------------

INSTALLED_APPS = [  # without "daphne": it would load Twisted into every process, for `runserver`
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "pgtrigger",
    "fleet",
    "rollouts",
    "halcyon_site",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "fleet.dashboard.pages.errors.Unavailable",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "rollouts.middleware.note_origin",
]

ROOT_URLCONF = "halcyon_site.urls"
ASGI_APPLICATION = "halcyon_site.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# -- PostgreSQL ------------------------------------------------------------------------------
# CONN_MAX_AGE stays 0: under ASGI each thread would keep its own connection. The web process
# pools instead (HALCYON_DB_POOL, set by `manage.py web`); commands and workers do not.

DATABASES = {"default": env.database(DATABASE_URL)}
_database_options: dict[str, object] = DATABASES["default"]["OPTIONS"]  # type: ignore[assignment]
_database_options.setdefault("connect_timeout", "5")
if env.boolean("HALCYON_DB_POOL"):
    _database_options["pool"] = {"min_size": 1, "max_size": 12, "timeout": 5}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Valkey: the live feed and Celery --------------------------------------------------------
# Channels waits up to 5 s for a message in one blocking command; redis-py's own timeout is 5 s
# as well, and would call a quiet second a broken connection.

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {
            "hosts": [{"address": VALKEY_URL, "socket_timeout": 15}],
            "prefix": "halcyon",
            "expiry": 10,
            "capacity": 200,
        },
    },
}

CELERY_BROKER_URL = env.celery_broker(VALKEY_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "halcyon:celery:", "socket_timeout": 5}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_TIME_LIMIT = 120
CELERY_TASK_DEFAULT_QUEUE = "halcyon"
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BEAT_SCHEDULE = {
    # A tick that waited longer than its period is worthless: `expires` lets it die.
    "beat heartbeat": {
        "task": "fleet.tasks.beat_heartbeat",
        "schedule": 5.0,
        "options": {"expires": 10},
    },
    "judge rollouts": {
        "task": "rollouts.tasks.evaluate_due",
        "schedule": 2.0,
        "options": {"expires": 4},
    },
    "sweep silent replicas": {
        "task": "fleet.tasks.sweep_replicas",
        "schedule": 15.0,
        "options": {"expires": 30},
    },
    "roll up windows": {
        "task": "fleet.tasks.roll_up_windows",
        "schedule": 300.0,
        "options": {"expires": 300},
    },
    "forget old rows": {
        "task": "fleet.tasks.forget_old_rows",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
}

# -- people ----------------------------------------------------------------------------------

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
CSRF_FAILURE_VIEW = "fleet.dashboard.pages.errors.stale_form"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"

# -- the browser's side ----------------------------------------------------------------------

HALCYON_TLS = env.boolean("HALCYON_TLS")  # set it where a proxy terminates TLS in front
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HALCYON_TLS
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HALCYON_TLS else None
SECURE_SSL_REDIRECT = HALCYON_TLS
SECURE_HSTS_SECONDS = 31_536_000 if HALCYON_TLS else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2**20
SECURE_CSP = {
    "default-src": [CSP.SELF],
    "style-src-attr": [CSP.UNSAFE_INLINE],  # charts position their labels by style attributes
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
    "form-action": [CSP.SELF],
}

STATIC_URL = "static/"
STATIC_ROOT = HALCYON_VAR / "static"
STATICFILES_DIRS = [
    *([BASE_DIR / "static"] if (BASE_DIR / "static").is_dir() else []),
    ("plotly", Path(plotly.__file__).parent / "package_data"),
]
SERVESTATIC_USE_FINDERS = True  # from the packages and `static/`: nothing to collect first
SERVESTATIC_AUTOREFRESH = DEBUG

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# -- the control API -------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "fleet.api.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["fleet.api.permissions.RolePermission"],
    "DEFAULT_PAGINATION_CLASS": "fleet.api.pagination.Pages",
    "DEFAULT_FILTER_BACKENDS": [
        "django_filters.rest_framework.DjangoFilterBackend",
        "rest_framework.filters.OrderingFilter",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "fleet.api.errors.as_envelope",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Halcyon control API",
    "DESCRIPTION": "What operators and replicas say to the control plane.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": r"/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

# -- Halcyon's own ---------------------------------------------------------------------------

# Where replicas may live. Link-local addresses are refused whatever this says.
HALCYON_REPLICA_NETWORKS = env.items(
    "HALCYON_REPLICA_NETWORKS",
    "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
)
HALCYON_METRICS_NETWORKS = env.items("HALCYON_METRICS_NETWORKS")  # who may scrape /metrics
HALCYON_GATEWAY_URL = env.text("HALCYON_GATEWAY_URL", "http://127.0.0.1:8080")
HALCYON_WEB_URL = env.text("HALCYON_WEB_URL", "http://127.0.0.1:8000")
HALCYON_FLEET_TOKEN = env.text("HALCYON_FLEET_TOKEN")  # what a replica registers with
HALCYON_REPLICA_SILENT_S = env.number("HALCYON_REPLICA_SILENT_S", 30.0, low=1)
HALCYON_WARM_UP_S = env.number("HALCYON_WARM_UP_S", 30.0, low=0)
HALCYON_REPLICA_FORGET_S = env.number("HALCYON_REPLICA_FORGET_S", 86_400.0, low=1)
HALCYON_KEEP_WINDOWS_DAYS = env.integer("HALCYON_KEEP_WINDOWS_DAYS", 30, low=1)
HALCYON_KEEP_USAGE_DAYS = env.integer("HALCYON_KEEP_USAGE_DAYS", 400, low=1)
HALCYON_FAULTS = env.boolean("HALCYON_FAULTS")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("HALCYON_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.server": {"level": "WARNING"},
        "daphne": {"level": "WARNING"},
        "aiohttp.access": {"level": "WARNING"},
    },
}
