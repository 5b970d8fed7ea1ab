// Airflow's own router, so that the browser's buttons Back and Forward work in the page, too.
import type { AnchorHTMLAttributes, ComponentType } from "react";

type Router = {
  Link: ComponentType<AnchorHTMLAttributes<HTMLAnchorElement> & { to: string }>;
  useLocation: () => { pathname: string; search: string };
  useNavigate: () => (to: string) => void;
};

export const { Link, useLocation, useNavigate } = (globalThis as unknown as { ReactRouterDOM: Router }).ReactRouterDOM;
