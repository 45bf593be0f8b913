# Finds Arrow and Parquet C++ and defines ArrowParquet::ArrowParquet.
#
# Uses an installed Arrow (its own CMake packages, through CMAKE_PREFIX_PATH) when there is one,
# else the libraries of the pyarrow wheel that scripts/setup unpacks into REPRISE_DEPS_DIR.
if(TARGET ArrowParquet::ArrowParquet)
  set(ArrowParquet_FOUND TRUE)
  return()
endif()

find_package(Arrow CONFIG QUIET)
find_package(Parquet CONFIG QUIET)
if(Arrow_FOUND AND Parquet_FOUND)
  add_library(ArrowParquet::ArrowParquet INTERFACE IMPORTED)
  target_link_libraries(ArrowParquet::ArrowParquet INTERFACE Arrow::arrow_shared Parquet::parquet_shared)
  set(ArrowParquet_FOUND TRUE)
  return()
endif()

find_path(ArrowParquet_INCLUDE_DIR parquet/arrow/reader.h
  HINTS "${REPRISE_DEPS_DIR}/pyarrow/include" NO_DEFAULT_PATH)
foreach(lib arrow parquet arrow_compute)
  # The wheel has no unversioned links.
  file(GLOB _candidates "${REPRISE_DEPS_DIR}/pyarrow/lib${lib}.so.*")
  list(GET _candidates 0 ArrowParquet_${lib}_LIBRARY)
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowParquet
  REQUIRED_VARS ArrowParquet_arrow_LIBRARY ArrowParquet_parquet_LIBRARY ArrowParquet_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Run scripts/setup, or put an Arrow C++ with Parquet on CMAKE_PREFIX_PATH.")

if(ArrowParquet_FOUND)
  add_library(ArrowParquet::ArrowParquet INTERFACE IMPORTED)
  target_include_directories(ArrowParquet::ArrowParquet SYSTEM INTERFACE "${ArrowParquet_INCLUDE_DIR}")
  target_link_libraries(ArrowParquet::ArrowParquet INTERFACE
    "${ArrowParquet_parquet_LIBRARY}" "${ArrowParquet_arrow_LIBRARY}")
endif()
