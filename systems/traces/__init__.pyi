from .coflow import read_coflow_trace as read_coflow_trace
from .csv_tables import read_csv_tables as read_csv_tables
from .gavel import read_gavel as read_gavel
from .google import google_trace_events as google_trace_events
from .google_snapshot import google_snapshot as google_snapshot
from .openb import read_openb as read_openb
