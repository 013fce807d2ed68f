"""The verbs that change rows, for datasets and streams. Those that begin a stream are in stream.py.

A verb checks its arguments, builds its transform, and returns another dataset or stream. Nothing
is read yet. To add a verb, write its transform as a file in transforms/ and its method here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Never, Self

import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.facts import with_facts
from recmap.model.field import FieldLike
from recmap.model.habits import helpful, no_attribute
from recmap.model.schema import Batch, Schema
from recmap.pipeline.frameworks import Frameworks

if TYPE_CHECKING:
    from recmap.model.facts import SourceFacts

    # rm.open needs only the names of the verbs; each verb imports what it uses.
    from recmap.pipeline.feed import PipelineFeed
    from recmap.pipeline.plan import Plan
    from recmap.pipeline.signature import VerbRecord
    from recmap.pipeline.transforms.base import Transform
    from recmap.pipeline.transforms.image_crop import Crop
    from recmap.pipeline.transforms.select import RowNumbersLike
    from recmap.store.paths import PathLike

# Rows and batches are counted in 64 bits.
_MOST = 2**62
# Bytes of rows that a table takes at a time.
_TABLE_BYTES = 16 << 20


@helpful
class Verbs(Frameworks):
    """The verbs that return a dataset of a dataset, and a stream of a stream."""

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name):  # noqa: ANN001, ANN204
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # the error of a property
            raise no_attribute(self, name, () if name[0] == "_" else self._known_columns())

    def __dir__(self) -> list[str]:
        # Tab completion offers only what is documented.
        return [name for name in super().__dir__() if name[0] != "_" or name[:2] == "__"]

    def _known_columns(self) -> Iterable[str]:
        """Return the names of the columns, if that takes no call of a function."""
        return self._plan.seen_schema or ()

    @property
    def _plan(self) -> Plan:
        """The plan that the verbs so far add up to."""
        raise NotImplementedError

    def _feed(self) -> PipelineFeed:
        from recmap.pipeline.feed import PipelineFeed

        return PipelineFeed(self._plan)

    def _table(self) -> tuple[Schema, Iterable[Batch]]:
        from recmap.adapters.feed import check_on_host
        from recmap.pipeline.feed import PipelineFeed
        from recmap.pipeline.transforms.batch import Batches

        plan = self._plan
        plan.check_no_bucket()
        # Not the feed of the pipeline: a table begins with the first epoch, and moves nothing.
        feed = PipelineFeed(plan)
        check_on_host(feed, "a table")
        if not feed.batched:
            plan.check_no_total_slice("a table of single rows")
            rows = max(1, _TABLE_BYTES // feed.ready.row_bytes)
            feed = PipelineFeed(replace(plan, grouping=Batches(rows, keeps_nulls=True)))
        return feed.schema, feed

    def _table_facts(self) -> SourceFacts:
        plan = self._plan
        users = any(each.calls_user_code for each in plan.transforms)
        facts = plan.rows.facts.after_functions() if users else plan.rows.facts
        return facts if plan.keeps_rows else with_facts(facts, table_index=None)

    def _rows(self, plan: Plan, record: VerbRecord | None = None) -> Self:
        """Return the same kind with another plan; ``record`` is the verb as written in states."""
        raise NotImplementedError

    def _transformed(self, transform: Transform, record: VerbRecord) -> Self:
        """Return this with another transform of rows or, after ``batch``, of batches."""
        return self._rows(self._plan.with_transform(transform), record)

    def select(self, what: str | Sequence[str] | RowNumbersLike, *more: str) -> Self:
        """Select columns by name, or rows by number.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(5), "y": np.arange(5) * 10})
        >>> [row["y"].item() for row in ds.select("y").select([4, 0])]
        [40, 0]
        """
        from recmap.pipeline.signature import record_select
        from recmap.pipeline.transforms.select import column_names, selected

        names = column_names(what, more)
        if names is not None:
            return self._with_columns(names, record_select(names, what))
        rows = self._plan.random_access("select of rows")
        plan = self._plan.with_rows(selected(rows, what))
        return self._rows(plan, record_select(names, what))

    def _with_columns(self, names: Sequence[str], record: VerbRecord) -> Self:
        """Return some of the columns."""
        return self._rows(self._plan.with_columns(names), record)

    def filter(self, fn: Callable[..., Any], *, batched: bool = False, seed: int = 0) -> Self:
        """Keep the rows for which ``fn(row)`` is true.

        With ``batched``, ``fn(columns)`` returns a mask for many rows at once.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(6)})
        >>> [row["x"].item() for row in ds.filter(lambda row: row["x"] % 2 == 1)]
        [1, 3, 5]
        """
        from recmap.model.arguments import as_whole, check_flag
        from recmap.pipeline.signature import record_function
        from recmap.pipeline.transforms.filter import Filter
        from recmap.pipeline.transforms.map import Function

        self._plan.check_before_batch("filter")
        check_flag("batched", batched)
        function = Function(fn, as_whole("seed", seed), self._plan.functions)
        record = record_function("filter", fn, batched, None, seed)
        return self._transformed(Filter(function, batched), record)

    def shuffle(
        self,
        *positional: Never,
        seed: int | None = None,
        window: int | None = None,
        reshuffle: bool = True,
    ) -> Self:
        """Shuffle all rows, in a new order in every epoch.

        The shuffle is exact and needs no buffer, so there is no buffer size.

        Without a ``seed``, one is drawn. The state keeps it, and ``restore()`` hands it to a
        pipeline that was not given one either. Several ranks need the same seed. With
        ``reshuffle=False``, all epochs have the same order.

        ``window`` is for files that are slow to read at random, such as compressed ones, and
        for small rows in a store:
        blocks of neighbouring rows come in a random order and are mixed within windows of
        ``window`` rows, which are held in memory.

        >>> import numpy as np, recmap as rm
        >>> shuffled = rm.from_arrays({"x": np.arange(5)}).shuffle(seed=1)
        >>> [[row["x"].item() for row in shuffled] for epoch in range(2)]
        [[2, 0, 1, 4, 3], [0, 2, 1, 3, 4]]
        """
        from recmap.model.arguments import as_whole, check_flag
        from recmap.pipeline.signature import Seed, VerbRecord, drawn_seed
        from recmap.pipeline.transforms.shuffle import refuse_sizes, shuffled

        refuse_sizes(positional)
        check_flag("reshuffle", reshuffle)
        rows = self._plan.random_access("shuffle")
        chosen = drawn_seed() if seed is None else Seed(as_whole("seed", seed))
        kept = "" if reshuffle else ", reshuffle=False"
        given = ""
        plan = self._plan
        if window is None:
            plan = replace(plan, unwarned=(*plan.unwarned, rows))
        else:
            window = as_whole("window", window, most=_MOST)
            given = f", window={window}"
        plan = plan.with_rows(shuffled(rows, chosen, window, reshuffle))
        return self._rows(plan, VerbRecord(f"shuffle(seed={{seed}}{given}{kept})", chosen))

    def map(
        self,
        fn: Callable[..., Any],
        *,
        workers: int | str | None = None,
        batched: bool = False,
        columns: Mapping[str, FieldLike] | None = None,
        seed: int = 0,
        fields: Mapping[str, FieldLike] | None = None,
    ) -> Self:
        """Call ``fn`` with every row: it takes a dict of values and returns one.

        After ``batch``, or with ``batched``, it takes and returns a dict of columns. It may write
        every batch into the same arrays: they are copied if it keeps them.

        ``workers=4`` calls it in four processes that share memory with this one,
        ``"threads:4"`` in threads, ``"fork:4"`` and ``"spawn:4"`` in processes started that
        way. The order of rows does not change. A function with an argument ``rng`` gets a
        random generator that depends only on ``seed``, the epoch and the row.

        The output types are those of the first rows, unless ``columns`` gives them:
        ``columns={"crop": "float32[*]"}``. A ``str`` is text. A later value that does not
        fit the type, such as 0.1 after float32, raises an error. (``fields`` is the old name of
        ``columns``.)

        To see the types, ``fn`` is called with a few of the first rows: when you iterate, or before
        that by a verb that needs to know the columns, such as ``rename``, ``cast``, ``where``,
        ``sort`` and ``rm.concat``. Those calls come on top of the one for every row.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(3.0)})
        >>> [row["y"].item() for row in ds.map(lambda row: {"y": row["x"] * 2})]
        [0.0, 2.0, 4.0]
        """
        from recmap.model.arguments import as_whole, check_flag, given_types, parse_workers
        from recmap.pipeline.signature import record_function
        from recmap.pipeline.transforms.map import Function, MapBatch, MapRows

        check_flag("batched", batched)
        types = given_types("map", columns, fields)
        schema = None if types is None else Schema(types)
        # What pack makes are rows, until batch.
        grouped = self._plan.grouping is not None and not self._plan.grouping.is_open
        function = Function(fn, as_whole("seed", seed), self._plan.functions)
        transform = (
            MapBatch(function, schema, rows_stay=not grouped)
            if batched or grouped
            else MapRows(function, schema)
        )
        plan = self._plan.with_transform(transform)
        if workers is not None:
            plan = plan.with_workers(parse_workers(workers))
        return self._rows(plan, record_function("map", fn, batched, types, seed))

    def decode_image(
        self,
        column: str,
        size: int | tuple[int, int] | None = (256, 256),
        *,
        channels: int = 3,
        dtype: npt.DTypeLike = "float32",
        scale: Literal["0-1"] | None = None,
        errors: Literal["raise", "skip", "zero"] = "raise",
        fast: bool = False,
        crop: Crop | None = None,
        flip: bool = False,
        layout: Literal["HWC", "CHW"] = "HWC",
        seed: int = 0,
        device: Any = None,
    ) -> Self:
        """Decode a column of JPEG, PNG, WebP, GIF or BMP images, in threads.

        Images are resized to ``size``: 224, or (height, width). ``errors="skip"`` drops rows with a
        broken image; ``"zero"`` makes the image black.

        ``crop`` takes a part of each image before it is resized:

        - ``"random_resized"`` is torchvision's ``RandomResizedCrop(size)``, with its defaults;
          ``{"scale": (0.35, 1), "ratio": (3 / 4, 4 / 3)}`` sets the part of the area and the
          ratio of width to height;
        - ``"random"`` is a window of ``size`` anywhere in the image, not resized;
        - ``"center"`` is the middle of the image, 224/256 of its shorter side;
          ``{"center": 1.0}`` takes another part.

        If an image is too small for ``"random"``, the largest window of the same shape is enlarged.
        Only the part of a JPEG that the crop needs is decoded.

        ``flip=True`` mirrors half of the images, chosen at random. Random choices depend only on
        ``seed``, the epoch and the row: they are the same with any number of workers and ranks and
        after a restart, and new in every epoch. Columns with the same seed, such as an image and
        its mask of the same size, are cropped and mirrored alike.

        ``layout="CHW"`` puts the channels first, as PyTorch wants them; ``dtype="uint8"`` is a
        quarter of the bytes to copy to a GPU.

        A column of images that are stored as arrays, uint8 of (height, width, channels), is
        cropped, mirrored and resized in the same way.

        Resizing is within 1 level of ``tf.image.resize(..., antialias=True)``. ``fast=True``
        decodes JPEGs at least twice as large as ``size`` at a reduced size, which is faster
        and differs by several levels where there is fine detail.

        With ``size=None``, images keep their sizes, and the column is ragged:
        ``row["image"].pad()`` is the array of one row, and ``batch(n, pad="longest")`` pads
        images to the largest of a batch.

        With ``device="cuda"``, ``to_torch(device="cuda")`` copies images as they are stored, and
        decodes, crops, resizes and converts them on the GPU. JPEGs need TorchCodec or torchvision.
        Crops are those of the CPU. Only ``shuffle``, ``batch`` and other verbs that need no pixels
        may come in between.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"image": np.zeros((4, 256, 256, 3), np.uint8)})
        >>> train = ds.decode_image("image", 224, dtype="uint8", crop="random", flip=True)
        >>> train.batch(4).schema["image"]
        Field('uint8[224,224,3]')
        """
        import numpy as np

        from recmap.pipeline.cropped_rows import with_images_cropped
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.decode_image import DecodeImages, ImageDecoder, NotePlaces

        self._plan.check_before_batch("decode_image")
        decoder = ImageDecoder(
            column,
            size,
            channels,
            dtype,
            scale,
            errors,
            fast=fast,
            crop=crop,
            flip=flip,
            layout=layout,
            seed=seed,
            device=device,
        )
        given: list[Any] = [column, decoder.size, channels, np.dtype(dtype), scale, errors, fast]
        if crop is not None or flip or layout != "HWC":
            given += [decoder.crop.given, flip, layout, seed]
        if any(images.column == column for images in self._plan.images_on_device):
            raise OptionError(f"decode_image: {column!r} is decoded already, on a device")
        verb = record(self.decode_image, *given)
        transform = DecodeImages(decoder, errors == "skip")
        if device is not None:  # a state may be continued with another device, or none
            plan, images = self._plan, (*self._plan.images_on_device, decoder)
            if (schema := plan.seen_schema) is not None:
                transform.output(schema)
            if (places := decoder.place_column) is not None:
                plan = plan.with_transform(NotePlaces(places))
            return self._rows(replace(plan, images_on_device=images), verb)
        return self._rows(with_images_cropped(self._plan, transform), verb)

    def decode_audio(
        self,
        column: str,
        *,
        rate: int | None = None,
        channels: int = 1,
        dtype: Literal["float32", "float64", "int16"] = "float32",
        errors: Literal["raise", "skip"] = "raise",
    ) -> Self:
        """Decode a column of WAV, FLAC, MP3 or Ogg files into samples.

        The column becomes ragged: ``float32[*]`` from -1 to 1, or ``int16[*]``. Files of several
        channels are mixed to one; with ``channels=2``, every file has two and every sample is a
        pair, ``float32[*,2]``.

        ``rate=16_000`` refuses files with another number of samples a second; nothing is
        resampled. Without it, the column ``audio/rate`` has the rate of each row.

        A file that is broken or cut off raises an error that names the row; ``errors="skip"``
        leaves out such rows. This needs soundfile, ``recmap[audio]``.
        """
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.decode_audio import DecodeAudio

        self._plan.check_before_batch("decode_audio")
        transform = DecodeAudio.checked(column, rate, channels, dtype, errors)
        given = (column, transform.rate, transform.channels, transform.dtype, errors)
        return self._transformed(transform, record(self.decode_audio, *given))

    def decode_video(
        self,
        column: str,
        *,
        frame: str | None = None,
        timestamp: str | None = None,
        size: int | tuple[int, int] = (256, 256),
        folder: PathLike | None = None,
        errors: Literal["raise", "skip"] = "raise",
    ) -> Self:
        """Decode frames of a column of MP4, MOV, WebM, Matroska or AVI files.

        ``frame`` names the column with the number of the frame of each row, from 0, or with
        several numbers; ``timestamp`` names one with times in seconds, for which the frame that
        begins within half a frame is taken. The column becomes ``uint8[height,width,3]``, with an
        axis before these if rows have several frames. Without either, every frame of the file is
        decoded: ``uint8[*,height,width,3]``. Frames are resized to ``size``.

        The column has the files themselves or, with ``folder``, paths in that folder. Frames of
        one file are decoded together, and it is opened once.

        A file that is broken or has no such frame raises an error that names the row;
        ``errors="skip"`` leaves out such rows. This needs TorchCodec and FFmpeg,
        ``recmap[video]``.
        """
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.decode_video import DecodeVideo

        self._plan.check_before_batch("decode_video")
        transform = DecodeVideo.checked(column, frame, timestamp, size, folder, errors)
        given = (column, frame, timestamp, transform.size, transform.folder, errors)
        return self._transformed(transform, record(self.decode_video, *given))

    def repeat(self, times: int | None = None) -> Self:
        """Repeat everything ``times`` times, or without end.

        Before ``batch``, a batch may hold the end of one epoch and the beginning of the next.
        After ``filter``, ``bucket`` or ``pack``, an epoch always ends with a batch.

        >>> import numpy as np, recmap as rm
        >>> train = rm.from_arrays({"x": np.arange(3)}).batch(2).repeat().take(3)
        >>> [batch["x"].tolist() for batch in train]
        [[0, 1], [2], [0, 1]]
        """
        from recmap.model.arguments import as_whole
        from recmap.pipeline.signature import record
        from recmap.pipeline.transforms.repeat import repeated

        plan = self._plan
        if times is not None:
            times = as_whole("times", times, most=2**40)  # rows are counted in 64 bits
        plan.check_no_total_slice("repeat")
        if plan.grouping is None and not plan.drops and plan.bucket is None:
            plan = plan.with_rows(repeated(plan.random_access("repeat"), times))
        else:
            plan = plan.repeated(times)
        return self._rows(plan, record(self.repeat, times))

    def take(self, count: int) -> Self:
        """Keep the first rows or, after ``batch``, the first batches."""
        from recmap.model.arguments import as_whole
        from recmap.pipeline.signature import record

        plan = self._plan.sliced("take", 0, as_whole("count", count))
        return self._rows(plan, record(self.take, count))

    def skip(self, count: int) -> Self:
        """Leave out the first rows or, after ``batch``, the first batches."""
        from recmap.model.arguments import as_whole
        from recmap.pipeline.signature import record

        plan = self._plan.sliced("skip", as_whole("count", count), None)
        return self._rows(plan, record(self.skip, count))

    def prefetch(
        self,
        count: int | None = None,
        *,
        threads: int | None = None,
        memory: int | str | None = None,
    ) -> Self:
        """Make ``count`` batches ahead of the loop; 0 makes none.

        ``memory`` limits the memory they take, 512 MB by default. ``threads`` is how many
        threads read at once, 2 by default; some disks are faster with more.
        """
        from recmap.model.arguments import as_whole, parse_size

        plan = self._plan
        if count is not None:
            plan = replace(plan, prefetch=as_whole("count", count, most=_MOST))
        if threads is not None:
            plan = replace(plan, read_threads=as_whole("threads", threads, 1, most=10_000))
            if plan.prefetch == 0:
                raise OptionError(
                    f"prefetch({count}, threads={threads}): one thread or more reads some batches "
                    "ahead"
                )
        if memory is not None:
            plan = replace(plan, memory=parse_size(memory))
        if plan.memory < 1:
            raise OptionError(
                f"prefetch(memory={plan.memory}): give the bytes to use, such as '512MB'"
            )
        return self._rows(plan)
