"""The roles in PostgreSQL, one for each purpose. None of them is a superuser.

Both the code that makes the roles and the code that grants the rights read this list.
"""

from sluice_ops.model.access import Role

OWNER = Role.PUBLISHER
"""The role that makes and changes tables, and grants the rights to them."""
WORKERS = (OWNER, Role.DRIVER, Role.AUDIT, Role.OPERATOR)
"""The roles that work in Sluice's database."""
AIRFLOW = "airflow"
"""The role that owns Airflow's database, of the same name, and can connect to no other."""


def known_as(role: Role) -> str:
    """Return a role's name in PostgreSQL.

    The name has a prefix, because roles belong to a whole server, which may have other users.
    """
    return f"sluice_{role}"
