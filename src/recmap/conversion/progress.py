"""The report of a conversion."""

from __future__ import annotations

from dataclasses import dataclass

from recmap.model.arguments import size_text

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """The result of a conversion."""

    files: list[str]
    rows: int
    written: int
    skipped: int
    seconds: float
    resumed: int
    explanation: str

    def __str__(self) -> str:
        files = self.files[0] if len(self.files) == 1 else f"{len(self.files):,} files"
        text = f"{self.rows:,} rows in {files}, {size_text(self.written)}"
        if self.resumed == len(self.files):
            return f"{text}: everything was finished already"
        text += f", in {self.seconds:.2f} s ({size_text(self.written / max(self.seconds, 1e-9))}/s)"
        if self.resumed:
            text += f"; {self.resumed:,} of the files were finished already"
        if self.skipped:
            text += f"; {self.skipped:,} bad records were left out"
        return text
