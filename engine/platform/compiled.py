"""Numba functions from Numba's cache, loaded without starting its compiler.

Numba fills its registries (a hundred modules, a quarter of a second) before it looks into the cache, which
does not need them. Here this waits until something is compiled.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite import binding as llvm
from llvmlite import ir
from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.runtime._nrt_python import c_helpers
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import InlineOverloads, NopythonRewrites, NoPythonSupportedFeatureValidation
from numba.core.typing.templates import ConcreteTemplate, builtin_registry, infer_global
from numba.core.untyped_passes import (
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    WithLifting,
)

from engine.platform import levels

levels.chosen()  # before anything is compiled, or looks at the target's features


class _NotCached(LookupError):
    """The cache has no code for a function."""


class _Locator(_CacheLocator):  # type: ignore[misc] # numba has no types
    """Finds a function's code in `numba.config.CACHE_DIR` by the function's module, name and line.

    Numba's own locators take the path and time of the source file, which are others each time that an
    AppImage is mounted. Whoever sets the folder names it after the sources.
    """

    def __init__(self, source: Any) -> None:
        assert config.CACHE_DIR, "within `cached_in`; an empty name would be the current folder"
        self._folder = Path(config.CACHE_DIR) / source.__module__
        self._line = source.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func)


class _Impl(CompileResultCacheImpl):  # type: ignore[misc] # numba has no types
    _locator_classes = (_Locator,)

    def reduce(self, cres: Any) -> Any:
        """As in the base class, but without the types as text, in which there are paths and addresses, and
        without the intermediate code, which is three quarters of the file and would be parsed at each start.
        Numba asks it for the names of functions, and links other compiled code with it, of which there is
        none: that calls a `part`.
        """
        (name, kind, (machine_code, code)), *rest = super().reduce(cres._replace(type_annotation=""))
        called = cres.fndesc.llvm_func_name, cres.fndesc.llvm_cpython_wrapper_name
        return (
            name,
            kind,
            (machine_code, _naming(code, *called, cres.fndesc.llvm_cfunc_wrapper_name)),
        ), *rest


def _naming(code: bytes, *functions: str) -> bytes:
    """Intermediate code of a module that has nothing but empty functions, those of `functions` that `code`
    has.
    """
    defined = {each.name for each in llvm.parse_bitcode(code).functions if not each.is_declaration}
    module = ir.Module()
    for name in defined.intersection(functions):
        empty = ir.Function(module, ir.FunctionType(ir.VoidType(), ()), name)
        ir.IRBuilder(empty.append_basic_block()).ret_void()
    return bytes(llvm.parse_assembly(str(module)).as_bitcode())


@functools.cache
def _declare_runtime() -> None:
    """Let cached code find the functions of Numba's runtime that are written in C.

    The others are linked into it. To compile them again, as Numba does before anything else, takes 15 ms.
    """
    for name, address in c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _Cache(FunctionCache):  # type: ignore[misc] # numba has no types
    """The cached code of one function, in `numba.config.CACHE_DIR` at the time of construction."""

    _impl_class = _Impl

    def __init__(self, source: Any, *, must: bool = False) -> None:
        super().__init__(source)
        self._must = must

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As in the base class, but without `target_context.refresh()`.

        If there is no code: None, or `_NotCached` if it `must` exist.
        """
        _declare_runtime()
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
        if self._must:
            raise _NotCached
        return None


class _NoEnvironment:
    """For a function without machine code: its environment has no address to be written to."""

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing."""


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc] # numba has no types
    """The intermediate code of a function that only other compiled functions call.

    It is optimised and turned into machine code once, inside those that call it.
    """

    codegen = _NoEnvironment()

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0


_UNUSED_PASSES = frozenset(
    {
        FindLiterallyCalls,
        InlineClosureLikes,
        InlineInlinables,
        InlineOverloads,
        LiteralPropagationSubPipelinePass,
        LiteralUnroll,
        MakeFunctionToJitFunction,
        NopythonRewrites,
        NoPythonSupportedFeatureValidation,
        RewriteDynamicRaises,
        WithLifting,
    }
)
"""Passes for what the functions here have not: closures, comprehensions, whole-array expressions, `with`,
literal arguments. Each goes through the whole function, and some compute its variables' lifetimes again.
"""


@functools.cache
def _numbers_first() -> None:
    """Have the operators look for numbers first: Numba tries arrays before, which takes a third of the time
    that it takes to find the types. It prefers what is declared for the target to what is for all of them.
    """
    for key, known in list(builtin_registry.globals):
        if getattr(key, "__module__", "") == "_operator":
            for template in known.templates:
                if issubclass(template, ConcreteTemplate):
                    declared = type(template.__name__, (template,), {"metadata": {"target": "cpu"}})
                    infer_global(key)(declared)


class _Compiler(Compiler):  # type: ignore[misc] # numba has no types
    """Numba's compiler without `_UNUSED_PASSES`: the machine code is the same without them."""

    def __init__(self, typingctx: Any, *rest: Any) -> None:
        _numbers_first()
        super().__init__(typingctx, *rest)

    def define_pipelines(self) -> list[Any]:
        manager = PassManager("nopython")
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state).passes
        manager.passes += [each for each in usual if each[0] not in _UNUSED_PASSES]
        manager.finalize()
        return [manager]


class _PartCompiler(_Compiler):
    """A `_Compiler` into a `_PartLibrary`."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        super().__init__(typingctx, targetctx, _PartLibrary(targetctx.codegen(), "part"), *rest)


def sources_hash(sources: Iterable[Path], *more: str) -> str:
    """A name for the code that Numba makes of these source files; `more` is what else it depends on."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    digest.update("\0".join([numba.__version__, llvmlite.__version__, *more]).encode())
    return digest.hexdigest()[:16]


def function(source: Any, signature: Any, options: Mapping[str, Any], *, cache: bool) -> Any:
    """`numba.njit(signature, cache=cache, **options)(source)`, for calls from Python; see `part`."""
    made = njit(pipeline_class=_Compiler, no_cfunc_wrapper=True, **options)(source)
    if cache:
        made._cache = _Cache(source)
    made.compile(signature)
    made.disable_compile()
    return made


def part(source: Any, signature: Any, options: Mapping[str, Any]) -> Any:
    """A function for other compiled functions to call, faster to compile than `function`: it has no machine
    code of its own, so Python cannot call it.
    """
    made = njit(pipeline_class=_PartCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(
        source
    )
    made.compile(signature)
    made.disable_compile()
    return made


def numpy_part(source: Any, signature: Any, flags: Iterable[str] = ()) -> Any:
    """A `part` whose divisions are NumPy's, with these flags for its arithmetic with floats."""
    return part(source, signature, {"error_model": "numpy", "fastmath": set(flags)})


@contextmanager
def cached_in(folder: Path | None) -> Iterator[None]:
    """Load and store compiled code in a folder."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        yield
    finally:
        config.CACHE_DIR = before


def cached_function(source: Any, signature: Any, options: Mapping[str, Any]) -> Any | None:
    """`function` from cached code; None if there is none.

    Cached code includes what `source` calls, which need not be compiled then.
    """
    made = njit(**options)(source)
    made._cache = _Cache(source, must=True)
    try:
        made.compile(signature)
    except _NotCached:
        return None
    made.disable_compile()
    return made


def cached_callback(source: Any, signature: Any, options: Mapping[str, Any]) -> Any | None:
    """`callback` from cached code; None if there is none. It includes what `source` calls."""
    made: Any = CFunc(source, normalize_signature(signature), locals={}, options=dict(options))
    made._cache = _Cache(source, must=True)
    try:
        made.compile()
    except _NotCached:
        return None
    return made


def callback(source: Any, signature: Any, options: Mapping[str, Any], *, cache: bool) -> Any:
    """`numba.cfunc(signature, cache=cache, **options)(source)`."""
    made: Any = CFunc(source, normalize_signature(signature), {}, dict(options), pipeline_class=_Compiler)
    if cache:
        made._cache = _Cache(source)
    made.compile()
    return made
