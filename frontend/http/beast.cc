// Beast's own implementation, compiled once.

#include <boost/beast/src.hpp>
