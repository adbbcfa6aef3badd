#include "deploy/cli/bench/text_table.h"

#include <algorithm>
#include <cstdio>

#include "common/check.h"
#include "common/strings.h"

namespace tandem {
namespace {

void AppendAligned(const TableRow& row, const std::vector<size_t>& widths, std::string* out) {
  std::string line;
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string blanks(widths[i] - row[i].size(), ' ');
    if (i > 0) line += "  ";
    line += ParseNumber<double>(row[i]) ? blanks + row[i] : row[i] + blanks;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  *out += line + '\n';
}

std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string AlignedTable(const TableRow& heading, const std::vector<TableRow>& rows) {
  std::vector<size_t> widths(heading.size(), 0);
  for (size_t i = 0; i < heading.size(); ++i) widths[i] = heading[i].size();
  for (const TableRow& row : rows) {
    CHECK(row.size() == heading.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  AppendAligned(heading, widths, &out);
  for (const TableRow& row : rows) AppendAligned(row, widths, &out);
  return out;
}

std::string CsvTable(const TableRow& heading, const std::vector<TableRow>& rows) {
  std::string out;
  const auto append = [&out](const TableRow& row) {
    for (size_t i = 0; i < row.size(); ++i) out += (i > 0 ? "," : "") + CsvCell(row[i]);
    out += "\r\n";
  };
  append(heading);
  for (const TableRow& row : rows) append(row);
  return out;
}

std::string Decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace tandem
