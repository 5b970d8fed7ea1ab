"""Who works in PostgreSQL: a role for each purpose, none of them a superuser. One list, used where roles are made and where rights are."""

from sluice_ops.model.access import Role

OWNER = Role.PUBLISHER
"""Who makes and changes tables, and grants the rights to them."""
WORKERS = (OWNER, Role.DRIVER, Role.AUDIT, Role.OPERATOR)
"""The roles that work in Sluice's database."""
AIRFLOW = "airflow"
"""The role that owns Airflow's database, of the same name, and can connect to no other."""


def known_as(role: Role) -> str:
    """Return a role's name in PostgreSQL; roles belong to a whole server, which others may use too."""
    return f"sluice_{role}"
