"""LeRobot datasets: folders of Parquet files and videos."""
