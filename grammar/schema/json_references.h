#pragma once

// `$ref` in JSON schemas: to what it refers, and how it stays true when its schema moves.
// Pure; any thread; depth of recursion: the schema's.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem {

// Whether a keyword's value is data, in which nothing refers to anything.
bool IsData(std::string_view keyword);

// As a URI's fragment: bytes may be escaped by %, then it is a JSON pointer. Null: it refers to
// another document, or to nothing.
const nlohmann::ordered_json* FindTarget(const nlohmann::ordered_json& root,
                                         const std::string& ref);

// Whether every reference within a schema begins with one of these.
bool RefersOnlyTo(std::string_view place, std::string_view other_place,
                  const nlohmann::ordered_json& schema);

// Lets a schema that was a whole one stand at the place ("#/$defs/a") of another.
void MoveReferences(const std::string& place, nlohmann::ordered_json* schema);

// xgrammar walks along names of objects as they are written, so it finds no target whose name has
// an escape, is empty or counts an array's items. Such a target gets a copy in `$defs`. Whether the
// schema changed.
bool GiveTargetsNames(nlohmann::ordered_json* root);

}  // namespace tandem
