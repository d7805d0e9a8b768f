"""The stubs say what there is, no more and no less, and every function says what it does."""

import ast
import pathlib

import fairlead
import fairlead.command

MODULES = {"__init__.pyi": fairlead, "command.pyi": fairlead.command}


def classes_of(module):
    tree = ast.parse((pathlib.Path(fairlead.__file__).parent / module).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def functions_of(node):
    return {each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_class_and_function_has_a_stub():
    for file, module in MODULES.items():
        stubs = classes_of(file)
        for name, stub in stubs.items():
            there = getattr(module, name)
            public = {each for each in vars(there) if not each.startswith("_")}
            stubbed = {each for each in functions_of(stub) if not each.startswith("_")}
            if name in ("Code",) or issubclass(there, Exception):
                continue
            assert public == stubbed, name
        assert set(stubs) == {name for name in module.__all__ if isinstance(getattr(module, name), type)}


def test_stubs_have_the_parameters_that_there_are():
    for file, module in MODULES.items():
        for name, stub in classes_of(file).items():
            for function, node in functions_of(stub).items():
                there = vars(getattr(module, name)).get(function)
                text = getattr(there, "__doc__", None)
                if not text or "(self: " not in text or function.startswith("__"):
                    continue
                spoken = text.splitlines()[0]
                for argument in node.args.args[1:] + node.args.kwonlyargs:
                    assert f" {argument.arg}:" in spoken, f"{name}.{function} has no {argument.arg}: {spoken}"


def test_everything_says_what_it_does():
    for module in MODULES.values():
        for name in module.__all__:
            each = getattr(module, name)
            assert (each.__doc__ or "").strip(), name
            if not isinstance(each, type) or issubclass(each, BaseException) or each is fairlead.Code:
                continue
            for member, function in vars(each).items():
                if member.startswith("_"):
                    continue
                text = function.__doc__ or ""
                if text.startswith(f"{member}("):  # what pybind11 says by itself is no description
                    text = text.partition("\n")[2].strip()
                assert text, f"{name}.{member} has no docstring"
