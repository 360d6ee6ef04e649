"""What is wrong with a value is told in our words, whatever pydantic calls it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, field_validator

from uepnet.model.validation import MAX_SHOWN, first_complaint, shown


class Piece(BaseModel):
    size: int = 1


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    whole: int = 1
    number: float = 1.0
    bounded: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] = 1
    above: Annotated[int, Field(gt=0, lt=9)] = 1
    yes: bool = True
    text: Annotated[str, Field(min_length=1, max_length=3)] = "a"
    long_text: Annotated[str, Field(min_length=2)] = "ab"
    pattern: Annotated[str, Field(pattern="^a$")] = "a"
    choice: Literal["a", "b", "c"] = "a"
    items: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] = (1,)
    pair: Annotated[tuple[int, ...], Field(min_length=2)] = (1, 2)
    names: list[str] = []
    table: dict[str, int] = {}
    part: Piece = Piece()
    path: Path = Path()
    size: ByteSize = ByteSize(1)
    own: int = 1
    needed: int

    @field_validator("own")
    @classmethod
    def check_own(cls, own: int) -> int:
        if own != 1:
            raise ValueError("own is one.")
        return own


@pytest.mark.parametrize(
    ("values", "field", "text"),
    [
        ({}, "needed", "it is missing"),
        ({"neded": 1}, "neded", "this key is not known"),
        ({"whole": "x"}, "whole", "it must be a whole number"),
        ({"whole": 1.5}, "whole", "it must be a whole number"),
        ({"whole": "9" * 5000}, "whole", "it must be a whole number"),
        ({"number": "x"}, "number", "it must be a number"),
        ({"bounded": "nan"}, "bounded", "it must be a finite number"),
        ({"bounded": -1}, "bounded", "it must be at least 0"),
        ({"bounded": 1e8}, "bounded", "it must be at most 10000000"),
        ({"above": 0}, "above", "it must be greater than 0"),
        ({"above": 9}, "above", "it must be less than 9"),
        ({"yes": "perhaps"}, "yes", "it must be true or false"),
        ({"yes": []}, "yes", "it must be true or false"),
        ({"text": 1}, "text", "it must be a text"),
        ({"text": ""}, "text", "it must not be empty"),
        ({"text": "abcd"}, "text", "it must have at most 3 characters"),
        ({"long_text": "a"}, "long_text", "it must have at least 2 characters"),
        ({"pattern": "b"}, "pattern", "it must match the pattern ^a$"),
        ({"choice": "d"}, "choice", "it must be a, b or c"),
        ({"items": 1}, "items", "it must be a list"),
        ({"items": [1, "x"]}, "items.1", "it must be a whole number"),
        ({"items": []}, "items", "it must not be empty"),
        ({"items": [1, 2, 3]}, "items", "it must have at most 2 items"),
        ({"pair": [1]}, "pair", "it must have at least 2 items"),
        ({"names": 1}, "names", "it must be a list"),
        ({"table": []}, "table", "it must hold keys with their values"),
        ({"part": 1}, "part", "it must hold keys with their values"),
        ({"path": 1}, "path", "it must be a path"),
        ({"size": "lots"}, "size", "it must be a size in bytes, such as 1048576 or 32MiB"),
        ({"size": "1 furlong"}, "size", "it must be a size in bytes, such as 1048576 or 32MiB"),
        ({"own": 2}, "own", "own is one"),
    ],
)
def test_every_kind_of_error_has_our_words(values: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(ValidationError) as error:
        Everything.model_validate(({"needed": 1} if values else {}) | values)
    assert first_complaint(error.value) == (field, text)


def test_a_misspelt_key_comes_before_the_missing_one() -> None:
    with pytest.raises(ValidationError) as error:
        Everything.model_validate({"neded": 1})
    assert len(error.value.errors()) == 2
    assert first_complaint(error.value) == ("neded", "this key is not known")


@pytest.mark.parametrize(("json", "place"), [("", "column 0"), ('{"a": }', "column 7"), (b"\xff", "column 1")])
def test_wrong_json_is_told_with_its_place(json: str | bytes, place: str) -> None:
    with pytest.raises(ValidationError) as error:
        Everything.model_validate_json(json)
    assert first_complaint(error.value) == ("", f"it is not valid JSON (line 1, {place})")


def test_a_kind_that_is_not_known_still_hides_the_words_of_pydantic() -> None:
    class Classes(BaseModel):
        made: type[int]

    with pytest.raises(ValidationError) as error:
        Classes.model_validate({"made": 7})
    assert first_complaint(error.value) == ("made", "the value is not valid")


def test_a_long_value_is_cut() -> None:
    assert shown("9" * 5000) == "9" * MAX_SHOWN + "..."
    assert shown(7) == "7"
