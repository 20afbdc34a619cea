"""Three roles, as Django groups: each may do what the one before may, and more.

Viewer reads everything. Operator also acts on the running fleet: drains, splits, rollouts.
Admin also changes who may ask for what: tenants, keys, quotas, tokens, users. A superuser
is an Admin. The stock admin site's permissions follow the same table.
"""

from enum import IntEnum
from typing import Any

from django.apps import apps
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, Permission
from django.db.models import Q


class Role(IntEnum):
    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def group_name(self) -> str:
        return self.name.capitalize()


OPERATOR_MODELS = {"replica", "trafficsplit", "model", "modelversion", "rollout"}
APPS = ("fleet", "rollouts")


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role:
    """The highest role that the user's groups give. An inactive user has none."""
    if not user.is_authenticated or not user.is_active:
        return Role.NONE
    if getattr(user, "is_superuser", False):
        return Role.ADMIN
    names = set(Group.objects.filter(user=user.pk).values_list("name", flat=True))
    held = [role for role in Role if role is not Role.NONE and role.group_name in names]
    return max(held, default=Role.NONE)


def has_role(user: AbstractBaseUser | AnonymousUser, role: Role) -> bool:
    return role_of(user) >= role


def create_groups(**_: Any) -> None:
    """Have the three groups with their permissions. Runs after every migrate."""
    if not apps.is_installed("django.contrib.auth"):
        return
    ours = Permission.objects.filter(content_type__app_label__in=APPS)
    viewing = Q(codename__startswith="view_")
    operating = Q(content_type__model__in=OPERATOR_MODELS) & ~Q(codename__startswith="delete_")
    people = Q(content_type__app_label="auth", content_type__model__in=["user", "group"])
    wanted = {
        Role.VIEWER: ours.filter(viewing),
        Role.OPERATOR: ours.filter(viewing | operating),
        Role.ADMIN: ours | Permission.objects.filter(people),
    }
    for role, permissions in wanted.items():
        group, _created = Group.objects.get_or_create(name=role.group_name)
        group.permissions.set(permissions)
