"""Model files (.mps, .lp, also .gz) and solution files of solvers, with the names that they hold."""

from flowlex.formulations.program_files.named_program import NamedProgram, ProgramFileError
from flowlex.formulations.program_files.read_and_write import (
    parse_program,
    program_bytes,
    program_format,
    read_program,
    write_program,
)
from flowlex.formulations.program_files.solution_files import SolutionFile, columns_of, parse_solution, read_solution

__all__ = [
    "NamedProgram",
    "ProgramFileError",
    "SolutionFile",
    "columns_of",
    "parse_program",
    "parse_solution",
    "program_bytes",
    "program_format",
    "read_program",
    "read_solution",
    "write_program",
]
