"""What a test source defines, and what it expects of the program."""

import ast
import builtins
import sys

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def tested_names(tree: ast.Module, entry_point: str | None) -> list[str]:
    """Names that the tests use and do not define: what they expect of the program, the entry point included.

    Functions of the interpreter are not among them, unless nothing else is left (a task that asks for `sum`).
    """
    free = names_read(tree)
    wanted = {name for name in free if not hasattr(builtins, name)}
    if entry_point:
        return sorted(wanted | {entry_point})
    return sorted(wanted or free)


def names_read(tree: ast.Module) -> set[str]:
    """Names that are read and nowhere in ``tree`` defined."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return used - _defined(tree)


def defined_at_top(tree: ast.Module) -> set[str]:
    """Names of the functions and classes at the top level."""
    return {node.name for node in tree.body if isinstance(node, _DEFINITIONS)}


def open_definition(prompt: ast.Module) -> str | None:
    """The last function or class of a prompt if it, or its own last method, has no code yet: what is asked for."""
    last = prompt.body[-1] if prompt.body else None
    if not isinstance(last, _DEFINITIONS):
        return None
    inner: ast.AST = last
    while isinstance(inner, ast.ClassDef) and isinstance(inner.body[-1], _DEFINITIONS):
        inner = inner.body[-1]
    assert isinstance(inner, _DEFINITIONS)
    return last.name if all(_does_nothing(node) for node in inner.body) else None


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _defined(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
    return found


def is_standard_module(name: str, tree: ast.Module) -> bool:
    """The tests use ``name`` as a module of the standard library (`math.isclose`) without importing it."""
    bases = (node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return name in sys.stdlib_module_names and any(isinstance(base, ast.Name) and base.id == name for base in bases)


def leaves_check_uncalled(tree: ast.Module) -> bool:
    """The tests are a function `check(candidate)`, as HumanEval's are, that nothing calls yet."""
    defined = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    calls = (node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    return defined and not any(isinstance(call.func, ast.Name) and call.func.id == "check" for call in calls)


def lines_in(file_name: str, error: BaseException) -> list[int]:
    """The lines of ``file_name`` that ``error`` passed through, outermost first."""
    lines, trace = list[int](), error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file_name:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines
