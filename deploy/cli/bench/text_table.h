#pragma once

// Rows of text as an aligned table or as CSV. Pure. All rows have as many cells as the heading.

#include <string>
#include <vector>

namespace tandem {

using TableRow = std::vector<std::string>;

// Columns are two blanks apart; cells that look like numbers are aligned right.
std::string AlignedTable(const TableRow& heading, const std::vector<TableRow>& rows);
// RFC 4180: commas, quotes and line ends are quoted.
std::string CsvTable(const TableRow& heading, const std::vector<TableRow>& rows);

std::string Decimal(double value, int digits);

}  // namespace tandem
